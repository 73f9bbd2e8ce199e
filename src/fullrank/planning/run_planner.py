"""The planner of a run: its records in, a plan at the iterations at which one is due."""

from collections.abc import Sequence

from fullrank.algorithms import Problem
from fullrank.codes.base import Code
from fullrank.common.types import LearnerId
from fullrank.config.auto_code import AutoCodeSettings
from fullrank.config.tree import RunConfig
from fullrank.planning.candidates import Plan
from fullrank.planning.costs import Payload
from fullrank.planning.observation import observation_of_record
from fullrank.planning.planner import Planner
from fullrank.planning.tuning import TUNING
from fullrank.runs.record import IterationRecord
from fullrank.wiring.plugins import max_variance_of


class RunPlanner:
    """Plans for a term of a run; equal records give equal plans.

    Args:
        config: The run's; with a fixed code the settings of ``auto`` are the defaults.
        problem: What the run trains.
    """

    def __init__(self, config: RunConfig, problem: Problem) -> None:
        auto = config.code.params if config.code.name == "auto" else {}
        self._moved = Payload.of(problem).traffic
        self._planner = Planner(
            AutoCodeSettings(**auto),
            units=len(problem.units),
            seed=config.seed,
            moved=self._moved,
            max_variance=max_variance_of(config),
            target=problem.target,
            faults=config.audit.byzantine,
            undecodable=config.controller.undecodable,
        )

    def observe(self, record: IterationRecord, code: Code) -> bool:
        """Take a committed iteration and its code into account; True if a plan is due."""
        observation = observation_of_record(record, code, self._moved)
        if observation is not None:
            self._planner.observe(observation)
        return (record.iteration + 1) % TUNING.interval == 0

    def plan(self, learners: Sequence[LearnerId]) -> Plan:
        """The code of the next iterations.

        Raises:
            CodeError: As ``Planner.plan``.
        """
        return self._planner.plan(learners)
