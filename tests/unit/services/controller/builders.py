"""A run without servers."""

from typing import Any

from fullrank.config import PluginSettings, RunConfig, load
from fullrank.rounds.round import Round
from fullrank.v1 import controller_pb2 as pb
from fullrank_controller.membership.assignment import deal
from fullrank_controller.membership.roster import Member
from fullrank_controller.run_state import Run

UNITS = 3
SIZE = 4


def make_config(*overrides: str) -> RunConfig:
    """Defaults with overrides, complete with those of the plug-ins."""
    return load(None, environ={}, overrides=overrides).check().config


def make_run() -> Run:
    """A run of three units of four entries."""
    return Run(
        name="run", term=2, iterations=10, units=UNITS, vector_size=SIZE, welcome=pb.Welcome()
    )


def join(run: Run, count: int = 1) -> list[Member]:
    """Learners that are ready."""
    members = [run.roster.join("host", now=0.0) for _ in range(count)]
    for member in members:
        run.roster.ready(member, fingerprint="a", probe=(b"p",), stable=True)
    return members


def open_round(run: Run, *, name: str = "cyclic", **params: Any) -> Round:
    """Deal the rows to everybody and open iteration 5."""
    run.committed = 5
    run.deal = deal(
        1, run.roster.eligible, asked=PluginSettings(name=name, params=params), units=UNITS, seed=0
    )
    assert run.deal is not None
    run.round = Round(5, run.deal.code, target_sizes=[SIZE] * UNITS)
    return run.round
