"""What equal hospitals, or equal groups of patients, would show by chance, and what the data show beyond it."""
