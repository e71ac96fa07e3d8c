"""Running trials: the driver that starts them, their processes, and their supervision."""
