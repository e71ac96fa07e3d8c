"""The commands that run experiments: runs, comparisons, curves, plans, audits, judgements and validations."""
