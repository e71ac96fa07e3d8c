"""The AUROC of hospitals: its variance, one common ROC shape, and the sums that a hospital may send."""
