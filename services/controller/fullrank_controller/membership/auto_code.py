"""``code.name = "auto"``: the planner requests a code between iterations."""

import asyncio
import logging

from fullrank.codes.families.auto import START, Auto
from fullrank.config import PluginSettings, RunConfig
from fullrank.planning import TUNING, Plan, Planner
from fullrank.planning.costs import Payload
from fullrank.planning.observation import observation_of_record
from fullrank.runs.record import IterationRecord
from fullrank.wiring import Training, max_variance_of
from fullrank_controller.membership.assignment import Assignment
from fullrank_controller.membership.membership import Membership
from fullrank_controller.membership.roster import Roster

log = logging.getLogger(__name__)

FIRST = PluginSettings(name="cyclic", params={"tolerance": START})
"""The code until there is a plan."""


class AutoCode:
    """Feeds committed iterations to the planner and requests the code that it chooses.

    Args:
        config: The resolved configuration; its code is ``auto``.
        training: Its algorithm determines the bytes that an iteration moves.
        roster: Attached learners.
        membership: Takes the requested code.

    Attributes:
        plan: The last plan; None before the first.
    """

    def __init__(
        self, config: RunConfig, training: Training, *, roster: Roster, membership: Membership
    ) -> None:
        self.plan: Plan | None = None
        self._roster, self._membership = roster, membership
        self._units = len(training.algorithm.problem.units)
        self._payload = Payload.of(training.problem)
        self._planner = Planner(
            Auto(**config.code.params),
            units=self._units,
            seed=config.seed,
            moved=self._payload.traffic,
            max_variance=max_variance_of(config),
        )
        membership.requested = FIRST

    async def observe(self, record: IterationRecord, assignment: Assignment) -> None:
        """Take a committed iteration into account; now and then make a plan."""
        observation = observation_of_record(record, assignment.code, self._payload.traffic)
        if observation is not None:
            self._planner.observe(observation)
        learners = [member.learner for member in self._roster.eligible]
        if (record.iteration + 1) % TUNING.interval or len(learners) <= self._units:
            return
        self.plan = plan = await asyncio.to_thread(self._planner.plan, learners)
        chosen = plan.candidate
        self._membership.requested = PluginSettings(name=chosen.name, params=chosen.params)
        log.log(
            logging.INFO if plan.changed else logging.DEBUG,
            "plan iteration=%d code=%s changed=%s reason=%s",
            record.iteration,
            chosen.label,
            plan.changed,
            plan.reason,
        )
