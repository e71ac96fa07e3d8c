"""The AUROC of hospitals: its variance, the one ROC shape of all, and what may leave a hospital of it."""
