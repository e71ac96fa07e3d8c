"""The scientific core, and which tests matter for each of its modules.

A mutant meets those of these tests that run its line. Tests on a real cluster and of whole commands are not among them:
they cost minutes, and what they are about is not what is computed.
"""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).parents[2]

EVERY_STRATEGY = (
    "strategies/test_paper_defaults",
    "strategies/test_bounds",
    "strategies/test_battery",
    "strategies/test_checks",
)
"""Judge every module of strategies, beside what is said of it below."""

EVERY_STATISTIC = ("statistics/test_numbers",)
"""The same for statistics."""

IDENTITIES = ("strategies/test_identities",)
VIRTUAL_TIME = ("virtual_time/*", "strategies/asynchronous/test_fedasync", "strategies/asynchronous/test_fedbuff")
PATIENT_CLUSTERS = (
    "strategies/patient_clusters/test_centres",
    "strategies/patient_clusters/test_patient_clusters",
    "strategies/patient_clusters/test_patient_divisions",
    "strategies/patient_clusters/test_gaussian_mixtures",
)
COALITIONS = (
    "strategies/coalitions/test_coalitions",
    "strategies/coalitions/test_cs_rcfl",
    "strategies/coalitions/test_robust_*",
    "strategies/coalitions/test_solver_*",
)
FLOORS = ("statistics/test_noise_floor", "statistics/test_floors_of_shares_and_errors")
NOISY = ("privacy/test_noisy_answers", "privacy/test_noisy_statistics")
GUARANTEES = (
    "privacy/test_grid_after_noise",
    "privacy/test_hidden_sizes",
    "privacy/test_hospital",
    "privacy/test_hospital_sensitivity",
    "privacy/test_patient",
    "privacy/test_pooled_clusters",
    "privacy/test_calibration",
    "privacy/test_sensitivity",
    "privacy/test_strategies_by_mode",
)
UPDATES = (
    "engine/test_bounded_updates",
    "engine/test_compressing",
    "engine/test_hidden_messages",
    "engine/test_merging",
    "engine/test_secure_sums",
    "engine/test_update_parts",
    "privacy/test_adaptive_shares",
    "privacy/test_lost_shares",
    "traffic/test_setup_traffic",
    *GUARANTEES,
    *NOISY,
)
SERVER = (
    "engine/test_attacks",
    "engine/test_early_end",
    "engine/test_secure_geometric_median",
    "engine/test_robust_rule",
    "engine/test_wrong_strategies",
    "robust/test_identities",
    *UPDATES,
)
SIGNATURES = (
    "strategies/test_signatures",
    "strategies/hospital_clusters/test_reclustering",
    "strategies/hospital_clusters/test_small_clusters",
    "privacy/test_noisy_answers",
    *IDENTITIES,
)

TESTS: dict[str, tuple[str, ...]] = {
    "strategies/view.py": ("strategies/selections/test_asking_selections", "virtual_time/test_system"),
    "strategies/base.py": (
        "strategies/selections/test_selection*",
        "strategies/selections/test_asking_selections",
        "core/test_exact",
        "traffic/test_traffic",
        *IDENTITIES,
    ),
    "strategies/problem.py": ("engine/test_patients", "strategies/test_problem_checks", *IDENTITIES),
    "strategies/checks/*": ("strategies/test_checks", "strategies/test_problem_checks"),
    "strategies/row_statistics.py": (
        "strategies/selections/test_asking_selections",
        "strategies/fairness/test_fairfed",
        "privacy/test_noisy_answers",
        *IDENTITIES,
    ),
    "strategies/asynchronous/*": ("strategies/asynchronous/test_fedasync", "strategies/asynchronous/test_fedbuff"),
    "strategies/coalitions/*": COALITIONS,
    "strategies/fairness/afl.py": ("strategies/fairness/test_afl", *IDENTITIES),
    "strategies/fairness/fairfed.py": ("strategies/fairness/test_fairfed", *IDENTITIES),
    "strategies/fairness/qfedavg.py": ("strategies/fairness/test_qfedavg", "engine/test_hidden_messages", *IDENTITIES),
    "strategies/hospital_clusters/cfl.py": ("strategies/hospital_clusters/test_cfl", *IDENTITIES),
    "strategies/hospital_clusters/clust_psi.py": ("strategies/hospital_clusters/test_clust_psi", *IDENTITIES),
    "strategies/hospital_clusters/fedsoft.py": ("strategies/hospital_clusters/test_fedsoft", *IDENTITIES),
    "strategies/hospital_clusters/ifca.py": (
        "strategies/hospital_clusters/test_ifca",
        "engine/test_hidden_messages",
        *IDENTITIES,
    ),
    "strategies/hospital_clusters/centres.py": (
        "strategies/hospital_clusters/test_ifca",
        "strategies/hospital_clusters/test_fedsoft",
    ),
    "strategies/hospital_clusters/*": SIGNATURES,
    "strategies/one_model/moon.py": ("strategies/one_model/test_moon", *IDENTITIES),
    "strategies/one_model/scaffold.py": ("strategies/one_model/test_scaffold", *IDENTITIES),
    "strategies/one_model/*": ("strategies/one_model/test_server_optimizers", *IDENTITIES),
    "strategies/patient_clusters/*": PATIENT_CLUSTERS,
    "strategies/personal/ditto.py": ("strategies/personal/test_ditto", *IDENTITIES),
    "strategies/personal/*": ("strategies/personal/test_shared_body", *IDENTITIES),
    "strategies/references/*": IDENTITIES,
    "strategies/selections/*": (
        "strategies/selections/test_selection*",
        "strategies/selections/test_asking_selections",
        "privacy/test_noisy_answers",
        *IDENTITIES,
    ),
    "strategies/shared/signatures.py": SIGNATURES,
    "strategies/hospital_clusters/by_signature.py": SIGNATURES,
    "strategies/shared/clustering.py": ("strategies/test_silhouette", *SIGNATURES),
    "strategies/shared/silhouette.py": ("strategies/test_silhouette", "strategies/hospital_clusters/test_clust_psi"),
    "strategies/shared/psi.py": ("data/test_heterogeneity", "strategies/hospital_clusters/test_clust_psi"),
    "strategies/shared/feature_bins.py": ("strategies/hospital_clusters/test_clust_psi", "privacy/test_noisy_answers"),
    "strategies/shared/label_counts.py": (
        "strategies/hospital_clusters/test_clust_psi",
        "strategies/selections/test_asking_selections",
        *NOISY,
    ),
    "strategies/shared/encoders.py": ("strategies/patient_clusters/test_patient_divisions",),
    "raysim/core/importing.py": ("core/test_importing", "config/test_bad_input", "core/test_imports"),
    "strategies/shared/*": (
        "strategies/hospital_clusters/test_cfl",
        "strategies/hospital_clusters/test_clust_psi",
        *IDENTITIES,
    ),
    "raysim/metrics/labels.py": ("metrics/*", "tune/test_results"),
    "raysim/metrics/*": ("metrics/*",),
    "raysim/statistics/discrimination/auroc.py": ("statistics/test_auroc", "statistics/test_paired"),
    "raysim/statistics/meta_analysis/between_hospitals.py": ("statistics/test_between_hospitals",),
    "raysim/statistics/clinical/calibration*": ("statistics/test_calibration",),
    "raysim/statistics/discrimination/common_curve.py": (
        "statistics/test_common_curve",
        "statistics/test_between_hospitals",
    ),
    "raysim/statistics/convergence.py": ("statistics/test_convergence",),
    "raysim/statistics/intervals.py": ("statistics/test_intervals",),
    "raysim/core/levels.py": ("statistics/test_intervals", "statistics/test_spread", "statistics/test_paired"),
    "raysim/data/checks/separation.py": ("data/checks/test_separation",),
    "raysim/statistics/clinical/by_hospital.py": ("statistics/test_by_hospital",),
    "raysim/statistics/clinical/recalibration*.py": ("statistics/clinical/test_recalibration",),
    "raysim/statistics/clinical/usefulness.py": ("report/test_facts",),
    "raysim/statistics/clinical/*": ("statistics/test_clinical", "statistics/test_calibration"),
    "raysim/statistics/patient_groups/*": ("statistics/test_patient_groups", "engine/test_group_gaps"),
    "raysim/statistics/chance/dispersion.py": FLOORS,
    "raysim/statistics/chance/simulate.py": FLOORS,
    "raysim/statistics/chance/inversion.py": FLOORS,
    "raysim/statistics/chance/floor_figures.py": FLOORS,
    "raysim/statistics/chance/noise_floor.py": FLOORS,
    "raysim/statistics/differences/paired.py": ("statistics/test_paired", "statistics/test_simultaneous"),
    "raysim/statistics/differences/harm.py": ("statistics/test_harm",),
    "raysim/statistics/differences/one_hospital.py": ("statistics/test_one_hospital", "statistics/test_harm"),
    "raysim/statistics/several.py": ("statistics/test_several",),
    "raysim/statistics/*": (
        "statistics/test_mean_interval",
        "statistics/test_over_seeds",
        "statistics/test_simultaneous",
        "statistics/test_size_slope",
        "statistics/test_sketches",
        "statistics/test_spread",
        "statistics/test_worst_decile",
    ),
    "raysim/adversaries/*": ("adversaries/*", "engine/test_attacks"),
    "raysim/audit/*": ("audit/test_attacks", "audit/test_one_run", "audit/test_canaries"),
    "raysim/compression/*": ("compression/*", "engine/test_compressing"),
    "raysim/privacy/accountant.py": ("privacy/test_accountant",),
    "raysim/privacy/events.py": ("privacy/test_accountant", "privacy/test_noise_math", *NOISY),
    "raysim/privacy/noisy_sums.py": ("privacy/test_noise_math", *NOISY),
    "raysim/privacy/statement.py": ("privacy/test_statement", "privacy/test_runs"),
    "raysim/privacy/repeated.py": ("privacy/test_repeated", "privacy/test_accountant"),
    "raysim/privacy/scaler.py": ("data/test_declared", "data/test_preprocessing"),
    "raysim/privacy/quick.py": (
        "privacy/test_quick_math",
        "privacy/test_accountant",
        "privacy/test_noise_math",
        *NOISY,
    ),
    "raysim/privacy/*": (
        "privacy/test_*_math",
        "privacy/test_clip",
        "privacy/test_hospital",
        "privacy/test_hospital_sensitivity",
        "privacy/test_patient",
    ),
    "raysim/robust/*": ("robust/*",),
    "raysim/secure/*": ("secure/*", "engine/test_secure_sums", "engine/test_hidden_messages"),
    "raysim/core/exact.py": ("core/test_exact", *IDENTITIES),
    "raysim/core/streams.py": ("core/test_streams", "training/test_kernels", *IDENTITIES),
    "raysim/training/kernels/*": (
        "training/test_autocast",
        "training/test_class_weights",
        "training/test_clipped",
        "training/test_gpu_memory",
        "training/test_kernels",
        "training/test_mlp_passes",
        "training/test_objective",
        "training/test_private_steps",
        "training/test_terms",
        "training/test_oracles",
        "training/test_models",
        "training/test_regression",
        "training/test_contrast",
        "training/test_networks",
        "training/test_batch_statistics",
        "training/test_torch_optimizers",
    ),
    "raysim/training/class_weights.py": ("training/test_class_weights", "engine/test_regression"),
    "raysim/training/losses.py": ("training/test_losses", "training/test_models", "training/test_objective"),
    "raysim/training/private.py": ("training/test_private_steps", "privacy/test_patient"),
    "raysim/data/contribution.py": ("data/test_contribution", "data/test_declared", "privacy/test_patient"),
    "raysim/data/declared.py": ("data/test_declared", "data/test_preprocessing"),
    "raysim/data/fitted.py": ("data/test_declared", "data/test_preprocessing", "data/test_build"),
    "raysim/data/raw_columns.py": ("data/test_declared", "data/test_preprocessing", "data/test_build"),
    "raysim/data/checks/leaks.py": ("data/checks/test_leaks",),
    "raysim/data/split.py": ("data/test_split", "data/test_folds", "data/test_build"),
    "raysim/data/preprocessing.py": ("data/test_preprocessing", "data/test_declared", "data/test_build"),
    "raysim/data/heterogeneity.py": (
        "data/test_heterogeneity",
        "data/sources/test_partition",
        "engine/test_regression",
    ),
    "raysim/engine/measuring/divisions.py": ("engine/test_patients", "engine/test_patient_tables"),
    "raysim/engine/measuring/losses.py": ("engine/test_losses", "engine/test_objective"),
    "raysim/engine/measuring/*": (
        "engine/test_clinical",
        "engine/test_group_gaps",
        "engine/test_last_steps",
        "engine/test_merging",
        "engine/test_patient_tables",
        "engine/test_patients",
        "engine/test_regression",
        "engine/test_scoring",
        "engine/test_subgroups",
        "engine/test_untrained",
        "privacy/test_noisy_figures",
    ),
    "raysim/engine/attacks/checks.py": ("engine/test_attacks",),
    "raysim/engine/attack_figures.py": ("engine/test_attacks",),
    "raysim/engine/attacks/byzantine.py": ("engine/test_attacks", "engine/test_colluding", "robust/*"),
    "raysim/engine/attacks/canaries.py": ("audit/test_canaries",),
    "raysim/engine/attacks/colluding.py": ("engine/test_attacks", "engine/test_colluding"),
    "raysim/engine/attacks/own_attacks.py": ("engine/test_attacks", "engine/test_update_parts"),
    "raysim/engine/privacy/noisy_statistics.py": (*NOISY, *GUARANTEES),
    "raysim/engine/attacks/secure_geometric_median.py": (
        "engine/test_secure_geometric_median",
        "robust/test_identities",
    ),
    "raysim/engine/attacks/*": SERVER,
    "raysim/engine/privacy/*": SERVER,
    "raysim/engine/pipeline/*": SERVER,
    "raysim/engine/server/merging.py": SERVER,
    "raysim/engine/client/sending.py": ("engine/test_attacks", *UPDATES),
    "raysim/cluster/placement.py": ("cluster/test_placement",),
    "raysim/virtual_time/*": VIRTUAL_TIME,
    "raysim/traffic/*": ("traffic/*",),
    "tune/spaces.py": ("tune/test_spaces", "tune/test_search"),
    "tune/pareto.py": ("tune/test_pareto", "tune/test_results"),
}


def core() -> list[str]:
    """The modules that hold the science, by their path from the root."""
    paths = (path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py") if ".venv" not in path.parts)
    return sorted(path for path in paths if _pattern(path) and (ROOT / path).stat().st_size)


def files_judging(module: str) -> list[str]:
    """The test files that matter for a module of the core; raises ``ValueError`` for another module."""
    pattern = _pattern(module)
    if pattern is None:
        raise ValueError(f"--files: {module} is not of the core; name its tests in {Path(__file__).name}")
    every = {"strategies": EVERY_STRATEGY, "raysim/statistics": EVERY_STATISTIC}
    names = TESTS[pattern] + sum((tests for room, tests in every.items() if module.startswith(f"{room}/")), ())
    files = {path.relative_to(ROOT).as_posix() for name in names for path in (ROOT / "tests").glob(f"{name}.py")}
    return sorted(file for file in files if Path(file).name.startswith("test_"))


def modules_judged() -> dict[str, list[str]]:
    """The modules of the core that each test file judges."""
    judged: dict[str, list[str]] = {}
    for module in core():
        for file in files_judging(module):
            judged.setdefault(file, []).append(module)
    return judged


def _pattern(module: str) -> str | None:
    return next((pattern for pattern in TESTS if fnmatch(module, pattern)), None)
