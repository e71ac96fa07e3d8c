"""Federated methods: one published method per file.

The module ``base`` defines the interface of the methods.
"""

GROUPS = {
    "regressions": "regressions",
    "trees": "boosted trees",
    "one_model": "one model",
    "fairness": "fairness",
    "hospital_clusters": "clusters of hospitals",
    "coalitions": "clusters of hospitals",
    "patient_clusters": "clusters of patients",
    "personal": "personal models",
    "asynchronous": "without rounds",
    "references": "references",
}
"""The heading of each folder in lists of strategies. Lists show the folders in this order."""
