"""Coded multi-agent reinforcement learning on machines that are slow, flaky or preempted."""

__all__ = ["__version__"]

__version__ = "0.4.0.dev0"
