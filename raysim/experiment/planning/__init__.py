"""The plan of a run: memory, placement and bytes, before it is started."""
