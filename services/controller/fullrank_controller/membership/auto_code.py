"""``code.name = "auto"``: the planner requests a code between iterations."""

import asyncio
import logging

from fullrank.codes.targets import each_unit
from fullrank.common.errors import CodeError
from fullrank.config.auto_code import AutoCodeSettings, first_code
from fullrank.config.tree import PluginSettings, RunConfig
from fullrank.planning.candidates import Plan
from fullrank.planning.costs import Payload
from fullrank.planning.observation import observation_of_record
from fullrank.planning.planner import Planner
from fullrank.planning.tuning import TUNING
from fullrank.run.assignment import RowAssignment
from fullrank.runs.record import IterationRecord
from fullrank.wiring.plugins import max_variance_of
from fullrank.wiring.training import Training
from fullrank_controller.membership.member import Member
from fullrank_controller.membership.membership import Membership
from fullrank_controller.membership.roster import Roster

log = logging.getLogger(__name__)


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
        problem = training.problem
        self._payload = Payload.of(problem)
        self._planner = Planner(
            AutoCodeSettings(**config.code.params),
            units=len(problem.units),
            seed=config.seed,
            moved=self._payload.traffic,
            max_variance=max_variance_of(config),
            target=problem.target,
            faults=config.audit.byzantine,
            undecodable=config.controller.undecodable,
        )
        target = each_unit(len(problem.units)) if problem.target is None else problem.target
        membership.requested = first_code(target, rows=config.learners)

    async def observe(self, record: IterationRecord, assignment: RowAssignment[Member]) -> None:
        """Take a committed iteration into account; now and then make a plan."""
        observation = observation_of_record(record, assignment.code, self._payload.traffic)
        if observation is not None:
            self._planner.observe(observation)
        learners = [member.learner for member in self._roster.eligible]
        if (record.iteration + 1) % TUNING.interval:
            return
        try:
            self.plan = plan = await asyncio.to_thread(self._planner.plan, learners)
        except CodeError as error:
            log.debug("no_plan iteration=%d reason=%s", record.iteration, error)
            return
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
