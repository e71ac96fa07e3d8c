"""Whether a model serves groups of patients alike within hospitals, and what groups' different hospitals add."""
