"""The page of a sweep: what is recommended and what it gives up, and every trial in figures that go together."""
