"""Evaluation of models on hospitals' rows: by hospital, by group of patients, and over all hospitals."""
