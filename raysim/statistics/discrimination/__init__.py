"""The AUROC of hospitals: its variance, one ROC shape for all, and the sums that a hospital may send."""
