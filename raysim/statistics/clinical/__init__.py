"""Clinical statistics: calibration, operating points, thresholds and curves, for each hospital and over hospitals."""
