"""What a comparison may conclude, and on what evidence."""
