"""What a clinician asks of a model: calibration, operating points, thresholds, curves, and each over hospitals."""
