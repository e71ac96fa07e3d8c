"""What each figure that raysim reports means, in one line; ``docs/metrics.md`` defines them."""

from __future__ import annotations

AT_HOSPITAL = {
    "n": "Evaluated rows.",
    "events": "Rows with the event.",
    "auroc": "Share of pairs, one row with the event and one without, that are ranked right; .5 is chance.",
    "auprc": "Average precision over all thresholds: the precision, weighted by the recall gained. More is better.",
    "log_loss": "Mean surprise at the outcome, in natural logarithms. Less is better.",
    "brier": "Mean squared distance of the risk from the outcome. Less is better.",
    "accuracy": "Share of rows that are classified right, at a risk of .5.",
    "recall": "Share of the events that are called, at a risk of .5.",
    "mae": "Mean absolute error, in the unit of the label. Less is better.",
    "rmse": "Root of the mean squared error, in the unit of the label. Less is better.",
    "r2": "Share of the label's variance that is explained; below 0 it is worse than the mean.",
    "bias": "Mean of prediction less label; 0 is best.",
}
"""Of one hospital and model."""

OVER_HOSPITALS = {
    "auroc": "Mean AUROC, weighted by evaluated rows.",
    "mae": "Mean absolute error, weighted by evaluated rows.",
    "mean_unweighted": "Mean of the headline figure (AUROC or MAE), every hospital alike.",
    "worst_decile": "Mean of the tenth of hospitals that are served worst.",
    "p10": "The figure that a tenth of hospitals lie below.",
    "p90": "The figure that a tenth of hospitals lie above.",
    "gini": "How unequal hospitals are; 0 when all are served alike.",
    "std": "Standard deviation over hospitals.",
    "size_bias": "Slope of the headline figure on the logarithm of a hospital's rows.",
    "size_bias_abs": "The same without its sign. Less is better.",
    "undefined": "Hospitals with evaluated rows at which the headline figure is undefined.",
    "hospitals": "Hospitals at which it is defined.",
    "accuracy": "Mean accuracy, weighted by evaluated rows.",
    "ad": "Average distance: the mean of 1 less the accuracy. Less is better.",
    "sdad": "Standard deviation of 1 less the accuracy over hospitals. Less is better.",
    "accuracy_min": "The least accuracy of a hospital.",
    "accuracy_max": "The greatest accuracy of a hospital. Hospitals with few rows are first or last by chance.",
    "accuracy_range": "The greatest accuracy of a hospital less the least. Less is better.",
    "accuracy_cv": "Standard deviation of accuracy over hospitals, divided by their unweighted mean. Less is better.",
    "auprc": "Mean average precision, weighted by evaluated rows.",
    "log_loss": "Mean log loss, weighted by evaluated rows. Less is better.",
    "brier": "Mean Brier score, weighted by evaluated rows. Less is better.",
    "recall": "Mean recall, weighted by evaluated rows.",
    "pooled_auroc": "AUROC over all rows together, which ranks patients of different hospitals too.",
    "rmse": "Mean RMSE, weighted by evaluated rows. Less is better.",
    "r2": "Mean R2, weighted by evaluated rows.",
    "bias": "Mean bias, weighted by evaluated rows.",
}
"""Of all hospitals together, by model."""
