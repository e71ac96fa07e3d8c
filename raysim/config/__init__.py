"""The keys of a configuration, read and checked."""
