"""Configuration: one typed tree, read in layers and stored with every run."""

from fullrank.config.layers import Resolved, load
from fullrank.config.toml import from_toml, read_config, to_toml
from fullrank.config.tree import PluginSettings, RunConfig

__all__ = ["PluginSettings", "Resolved", "RunConfig", "from_toml", "load", "read_config", "to_toml"]
