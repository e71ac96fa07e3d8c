"""The mathematics: a published method in each file.

On plain arrays; ``base`` holds the interface.
"""

GROUPS = {
    "regressions": "regressions",
    "trees": "boosted trees",
    "one_model": "one model",
    "fairness": "fairness",
    "hospital_clusters": "clusters of hospitals",
    "coalitions": "clusters of hospitals",
    "patient_clusters": "clusters of patients",
    "personal": "models of their own",
    "asynchronous": "without rounds",
    "references": "references",
}
"""What the strategies in each folder have in common, in the order in which they are listed."""
