"""Byzantine hospitals, robust rules against them, and canaries of a privacy audit."""
