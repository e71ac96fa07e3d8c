"""Pictures in files of their own, drawn with matplotlib."""
