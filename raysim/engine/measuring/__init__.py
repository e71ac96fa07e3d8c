"""What models are worth on hospitals' rows, for each hospital, group of patients and the federation."""
