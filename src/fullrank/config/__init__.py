"""Configuration: one typed tree, read in layers and stored with every run."""

from fullrank.config.collection import CollectSettings
from fullrank.config.faults import (
    CorruptFault,
    DropFault,
    Fault,
    HoldFault,
    ThrottleFault,
    fault_of,
)
from fullrank.config.layers import Resolved, load
from fullrank.config.leaves import ENVIRONMENT_PREFIX
from fullrank.config.plugins import complete_stragglers, learners_of
from fullrank.config.toml import config_digest, from_toml, read_config, to_toml
from fullrank.config.tree import (
    AuditSettings,
    CheckpointSettings,
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
    SamplingSettings,
    SidecarSettings,
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
    "CorruptFault",
    "DashboardSettings",
    "DropFault",
    "EnvironmentSettings",
    "Fault",
    "HealthSettings",
    "HoldFault",
    "LearnerSettings",
    "MetricsSettings",
    "MonitorSettings",
    "PluginSettings",
    "ReplaySettings",
    "Resolved",
    "RunConfig",
    "SamplingSettings",
    "SidecarSettings",
    "ThrottleFault",
    "TlsSettings",
    "as_tables",
    "complete_stragglers",
    "config_digest",
    "fault_of",
    "from_toml",
    "learners_of",
    "load",
    "read_config",
    "to_toml",
]
