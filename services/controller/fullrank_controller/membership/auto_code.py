"""``code.name = "auto"``: between iterations the planner says which code is wanted."""

import asyncio
import logging

from fullrank.codes.families.auto import START, Auto
from fullrank.config import PluginSettings, RunConfig
from fullrank.planning import TUNING, Planner
from fullrank.planning.costs import Payload
from fullrank.planning.observation import observation_of_record
from fullrank.runs.record import IterationRecord
from fullrank.training.trainer import Training
from fullrank.wiring import max_variance_of
from fullrank_controller.membership.assignment import Deal
from fullrank_controller.membership.membership import Membership
from fullrank_controller.run_state import Run

log = logging.getLogger(__name__)

FIRST = PluginSettings(name="cyclic", params={"tolerance": START})
"""Until there is a plan."""


class Planning:
    """Feeds the planner with committed iterations and passes its choice on to the membership.

    Args:
        config: The resolved configuration; its code is ``auto``.
        run: The learners that are there.
        membership: Told which code is wanted.
        payload: What an iteration moves.
    """

    def __init__(
        self, config: RunConfig, run: Run, membership: Membership, payload: Payload
    ) -> None:
        self._run = run
        self._membership = membership
        self._payload = payload
        self._planner = Planner(
            Auto(**config.code.params),
            units=run.units,
            seed=config.seed,
            moved=payload.traffic,
            max_variance=max_variance_of(config),
        )
        membership.wanted = FIRST

    async def note(self, record: IterationRecord, current: Deal) -> None:
        """Take a committed iteration; now and then plan the next ones."""
        observation = observation_of_record(record, current.code, self._payload.traffic)
        if observation is not None:
            self._planner.observe(observation)
        learners = [member.learner for member in self._run.roster.eligible]
        if (record.iteration + 1) % TUNING.interval or len(learners) <= self._run.units:
            return
        self._run.plan = plan = await asyncio.to_thread(self._planner.plan, learners)
        chosen = plan.candidate
        self._membership.wanted = PluginSettings(name=chosen.name, params=chosen.params)
        level = logging.INFO if plan.changed else logging.DEBUG
        log.log(
            level,
            "plan iteration=%d code=%s changed=%s reason=%s",
            record.iteration,
            chosen.label,
            plan.changed,
            plan.reason,
        )


def planning_of(
    config: RunConfig, run: Run, membership: Membership, training: Training
) -> Planning | None:
    """The planning of a run whose code is ``auto``, else None."""
    if config.code.name != "auto":
        return None
    payload = Payload.of(training.algorithm, training.batch_size)
    return Planning(config, run, membership, payload)
