"""The lines of the decision card, a module for each fact: plain functions from figures to a sentence and its state."""
