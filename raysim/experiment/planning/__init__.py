"""What a run would be like, before it is started."""
