"""Configuration: one typed tree, read in layers, written beside every run."""

from fullrank.config.layers import ENVIRONMENT_PREFIX, Resolved, load
from fullrank.config.toml import config_digest, from_toml, to_toml
from fullrank.config.tree import (
    CheckpointSettings,
    CollectSettings,
    ComputeSettings,
    ControllerSettings,
    EnvironmentSettings,
    HealthSettings,
    MetricsSettings,
    PluginSettings,
    ReplaySettings,
    RunConfig,
    as_tables,
)

__all__ = [
    "ENVIRONMENT_PREFIX",
    "CheckpointSettings",
    "CollectSettings",
    "ComputeSettings",
    "ControllerSettings",
    "EnvironmentSettings",
    "HealthSettings",
    "MetricsSettings",
    "PluginSettings",
    "ReplaySettings",
    "Resolved",
    "RunConfig",
    "as_tables",
    "config_digest",
    "from_toml",
    "load",
    "to_toml",
]
