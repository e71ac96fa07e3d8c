"""Environment variables that Ray's processes are started with; this module must import nothing that takes time."""

from __future__ import annotations

QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # Ray's announced default, which also silences the announcement.
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
"""Environment variables of a Ray that is started here, where they are not set."""

NO_PORT = "65536"
"""A port that nobody can listen at: two of Ray's processes serve metrics at a port that cannot be switched off."""

LOCAL = {
    "RAY_AUTH_MODE": "token",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_enable_metrics_collection": "0",
    "RAY_prestart_worker_first_driver": "0",
    "AUTOSCALER_METRIC_PORT": NO_PORT,
    "DASHBOARD_METRIC_PORT": NO_PORT,
}
"""The same for a Ray that is started here and not joined: no process gets in without the token, in any version; no
other machine reaches it, as on Windows and macOS; no port serves metrics to those without the token; and Ray does not
start a worker for every core first, of which a run may need two."""
