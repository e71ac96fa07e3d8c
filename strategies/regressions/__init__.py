"""The statisticians' ways of federating a regression: exact Newton steps over sums, one-shot ways, hospital effects."""
