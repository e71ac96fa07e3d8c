"""The lines of the decision card, one module for each fact: functions from figures to a sentence and its state."""
