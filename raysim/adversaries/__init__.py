"""What bad hospitals do to rows and updates."""
