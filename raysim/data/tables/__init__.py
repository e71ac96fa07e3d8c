"""Tables of any make: what a file holds, how it is written, and what its columns are."""
