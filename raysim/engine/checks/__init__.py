"""What is refused before a run starts or goes on, and what a strategy returns."""
