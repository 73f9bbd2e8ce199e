"""Configuration: one typed tree, read in layers and stored with every run."""

from fullrank.config.faults import (
    CorruptFault,
    DropFault,
    Fault,
    HoldFault,
    ThrottleFault,
)
from fullrank.config.layers import Resolved, load
from fullrank.config.toml import config_digest, from_toml, read_config, to_toml
from fullrank.config.tree import (
    ControllerSettings,
    DashboardSettings,
    EnvironmentSettings,
    PluginSettings,
    RunConfig,
    TlsSettings,
    as_tables,
)

__all__ = [
    "ControllerSettings",
    "CorruptFault",
    "DashboardSettings",
    "DropFault",
    "EnvironmentSettings",
    "Fault",
    "HoldFault",
    "PluginSettings",
    "Resolved",
    "RunConfig",
    "ThrottleFault",
    "TlsSettings",
    "as_tables",
    "config_digest",
    "from_toml",
    "load",
    "read_config",
    "to_toml",
]
