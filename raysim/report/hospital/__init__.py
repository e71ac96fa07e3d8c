"""The parts of pages about each hospital."""
