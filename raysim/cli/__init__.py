"""The commands of the command line, and nothing else."""
