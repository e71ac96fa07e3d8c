"""The sections of a configuration: their keys, defaults and bounds."""
