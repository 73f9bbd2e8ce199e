"""Configuration: one typed tree, read in layers, written beside every run."""

from fullrank.config.faults import Corrupt, Drop, Fault, Hold, Throttle, fault_of
from fullrank.config.layers import ENVIRONMENT_PREFIX, Resolved, load
from fullrank.config.plugins import complete_stragglers
from fullrank.config.toml import config_digest, from_toml, read_config, to_toml
from fullrank.config.tree import (
    AuditSettings,
    CheckpointSettings,
    CollectSettings,
    ComputeSettings,
    ControllerSettings,
    DashboardSettings,
    EnvironmentSettings,
    HealthSettings,
    LearnerSettings,
    MetricsSettings,
    MonitorSettings,
    PluginSettings,
    ReplaySettings,
    RunConfig,
    StragglerSettings,
    TlsSettings,
    as_tables,
)

__all__ = [
    "ENVIRONMENT_PREFIX",
    "AuditSettings",
    "CheckpointSettings",
    "CollectSettings",
    "ComputeSettings",
    "ControllerSettings",
    "Corrupt",
    "DashboardSettings",
    "Drop",
    "EnvironmentSettings",
    "Fault",
    "HealthSettings",
    "Hold",
    "LearnerSettings",
    "MetricsSettings",
    "MonitorSettings",
    "PluginSettings",
    "ReplaySettings",
    "Resolved",
    "RunConfig",
    "StragglerSettings",
    "Throttle",
    "TlsSettings",
    "as_tables",
    "complete_stragglers",
    "config_digest",
    "fault_of",
    "from_toml",
    "load",
    "read_config",
    "to_toml",
]
