"""The lines of the decision card: each module writes the line on one fact, from figures."""
