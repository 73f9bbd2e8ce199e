"""Short runs in which the laws train an algorithm, in one place and coded."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fullrank.algorithms.problem import Problem
from fullrank.common.errors import CodeError, ConfigError
from fullrank.config import RunConfig, load
from fullrank.config.code import code_of
from fullrank.config.tree import PluginSettings
from fullrank.conformance.subjects import Subject
from fullrank.local import LocalRun

WORLDS: tuple[Mapping[str, Any], ...] = (
    {"environment.name": "cooperative_navigation", "environment.agents": 3},
    {"environment.name": "switch_riddle"},
    {"environment.name": "food_collection", "environment.agents": 3},
    {
        "environment.name": "pettingzoo",
        "environment.factory": "fullrank.conformance.worlds:gathering",
    },
)
"""Environments, in the first of which that an algorithm does not refuse it is trained."""


def trained(subject: Subject) -> RunConfig:
    """Return a short run in the subject's world, or in the first of ``WORLDS`` that it accepts.

    Raises:
        ConfigError: It refuses all of them.
    """
    config = subject.config(batch=4 if subject.plays_episodes else 12, hidden=10)
    fields = {key: getattr(config, key) for key in ("batch_size", "hidden") if hasattr(config, key)}
    if hasattr(config, "epochs"):
        fields["epochs"] = 1
    epochs = subject.settings.get("epochs", min(1, config.data_mode().epochs))
    updates = 2 * epochs or 1  # over a collection of eight episodes
    options: dict[str, Any] = {
        "algorithm.name": subject.name,
        "iterations": updates * -(-3 // updates),
        "environment.copies": 8 if epochs else 2,
        "collect.steps": 10,
        "collect.warmup": 60,
        "collect.warmup_copies": 3,
        **{f"algorithm.{key}": value for key, value in ({**fields, **subject.settings}).items()},
    }
    refusals = list[str]()
    for world in [subject.world] if subject.world else WORLDS:
        try:
            checked = load(options=options | dict(world)).check().config
            LocalRun(checked).training.collector.require_one_team()
        except ConfigError as error:
            refusals.append(f"in {world['environment.name']}: {error}")
        else:
            return checked
    raise ConfigError(f"{subject.name} refuses every environment; {'; '.join(refusals)}")


def coded(reference: RunConfig, problem: Problem, code: str) -> RunConfig | None:
    """Return the same run with a code and late learners; None where the code does not exist."""
    late = PluginSettings(name="fixed_k", params={"k": 1})
    for learners in (len(problem.units) + 2, 15):
        config = replace(
            reference, learners=learners, code=PluginSettings(name=code), stragglers=late
        )
        try:
            code_of(config, units=len(problem.units), target=problem.target)
        except (CodeError, ConfigError):
            continue
        return config
    return None
