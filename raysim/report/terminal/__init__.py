"""What commands print: tables, and how far the work is."""
