"""The lines of the decision card (a report's summary), one module for each line."""
