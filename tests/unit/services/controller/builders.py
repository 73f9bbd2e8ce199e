"""A run without servers."""

from typing import Any

from fullrank.algorithms import DataMode, Problem, Unit
from fullrank.common.types import RunTerm
from fullrank.config import PluginSettings, RunConfig, load
from fullrank.rounds.decoding import ExactDecoding
from fullrank.rounds.round import Round
from fullrank.run.assignment import make_assignment
from fullrank.run.round import OpenRound
from fullrank.runs.events import EventLog
from fullrank.v1 import controller_pb2 as pb
from fullrank_controller.identity import RunIdentity
from fullrank_controller.membership.member import Member, Numerics
from fullrank_controller.membership.roster import Roster
from fullrank_controller.progress import RunProgress
from fullrank_controller.run import Run

UNITS = 3
SIZE = 4
NUMERICS = Numerics.of("a", [b"p"])


def make_config(*overrides: str) -> RunConfig:
    """Defaults with overrides, complete with those of the plug-ins."""
    return load(None, environ={}, overrides=overrides).check().config


def make_run(*overrides: str) -> Run:
    """A run of three units of four entries."""
    roster = Roster()
    roster.numerics = NUMERICS
    return Run.of(
        make_config(*overrides),
        RunIdentity(
            RunTerm("run", 2),
            Problem(
                units=tuple(Unit((unit,)) for unit in range(UNITS)),
                unit_sizes=(SIZE,) * UNITS,
                sections=(),
                reads=((),) * UNITS,
                row_size=1,
                data=DataMode(),
            ),
        ),
        welcome=pb.Welcome(),
        event_log=EventLog(),
        roster=roster,
        progress=RunProgress(committed=5, iterations=10),
        fix_numerics=lambda numerics: setattr(roster, "numerics", numerics),
    )


def join(run: Run, count: int = 1) -> list[Member]:
    """Attach learners that are ready."""
    members = [run.roster.join("host", now=0.0) for _ in range(count)]
    for member in members:
        run.roster.ready(member, numerics=NUMERICS, stable=True)
    return members


def open_round(run: Run, *, name: str = "cyclic", **params: Any) -> OpenRound[Member]:
    """Assign the rows to all learners and open iteration 5."""
    requested = PluginSettings(name=name, params=params)
    assignment = make_assignment(1, run.roster.eligible, requested=requested, units=UNITS, seed=0)
    assert assignment is not None
    run.membership.assignment = assignment
    round_ = Round(5, assignment.code, decoding=ExactDecoding(), target_sizes=[SIZE] * UNITS)
    opened = OpenRound(round_, assignment, members=run.roster)
    run.reception.open(opened)
    return opened
