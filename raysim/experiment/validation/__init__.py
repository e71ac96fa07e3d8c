"""An existing model or score at every hospital, without training."""
