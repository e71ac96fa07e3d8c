"""What becomes of a hospital's update before it leaves: its part of a sum, clipping, noise, compression, masks."""
