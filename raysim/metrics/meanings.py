"""The meaning of each reported figure in one line; ``docs/metrics.md`` has definitions."""

from __future__ import annotations

from raysim.metrics.declared import ERROR_FIGURES, SCORES

DECLARED = (*SCORES, *ERROR_FIGURES)

AT_HOSPITAL = {"n": "Evaluated rows.", "events": "Rows with the event."} | {
    figure.name: figure.meaning for figure in DECLARED
}
"""Meanings of figures of one hospital and model."""

OVER_HOSPITALS = {figure.name: figure.mean for figure in DECLARED} | {
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
    "ad": "Average distance: the mean of 1 less the accuracy. Less is better.",
    "sdad": "Standard deviation of 1 less the accuracy over hospitals. Less is better.",
    "accuracy_min": "The least accuracy of a hospital.",
    "accuracy_max": "The greatest accuracy of a hospital. Hospitals with few rows are first or last by chance.",
    "accuracy_range": "The greatest accuracy of a hospital less the least. Less is better.",
    "accuracy_cv": "Standard deviation of accuracy over hospitals, divided by their unweighted mean. Less is better.",
    "pooled_auroc": "AUROC over all rows together, which ranks patients of different hospitals too.",
}
"""Meanings of figures of all hospitals together, by model."""
