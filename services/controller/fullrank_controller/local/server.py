"""Composition root of a run in one process, whose rounds are computed on a thread of it.

One learner holds every row, and none is lost.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

from fullrank.algorithms.roles import Divided
from fullrank.audit.ledger import CONTROLLER
from fullrank.audit.proof import Evidence
from fullrank.common.cores import usable_cores
from fullrank.common.errors import ConfigError, FullrankError
from fullrank.common.failpoints import reach
from fullrank.config import RunConfig
from fullrank.host.certificates import Role
from fullrank.host.process import Launch, run, stop_event, tune_process
from fullrank.net.channel import Security
from fullrank.net.server import Health
from fullrank.planning.candidates import Plan
from fullrank.replay.samplers import Sample
from fullrank.rounds.decoding import open_round
from fullrank.run.assignment import RowAssignment
from fullrank.run.placement import Placement
from fullrank.run.round import OpenRound
from fullrank.runs.events import Joined
from fullrank.runs.record import IterationRecord
from fullrank.wiring.training import Training, refuse_free
from fullrank_controller.driver import Driver
from fullrank_controller.epilogue import record_failure
from fullrank_controller.local.computation import LEARNER, Computation, ComputedRound, LocalTable
from fullrank_controller.local.ranks import ranks_of
from fullrank_controller.membership.member import Member, Numerics
from fullrank_controller.membership.roster import expel_silent
from fullrank_controller.persistence.restore import restore
from fullrank_controller.persistence.run_numerics import own_numerics
from fullrank_controller.ports import ControllerPorts
from fullrank_controller.rounds.playback import OwnPlayback
from fullrank_controller.rounds.port import Cancellation, DecidedRound
from fullrank_controller.rounds.replay_pipeline import ReplayPipeline
from fullrank_controller.rounds.timeline import Timeline
from fullrank_controller.serving import drive, finish, held, open_term, term_raised
from fullrank_controller.term import Term

STOPPED = 130
"""Exit code of a run that was told to stop, as of a command that Ctrl-C ended."""


class LocalRounds:
    """Computes each round on a thread of this process, which holds all rows of the code.

    Args:
        term: The open parts of the term.
        computation: Computes decisions.
        pipeline: Plays before each computation, or beside it where they share nothing.
    """

    plan: Plan | None = None
    """Without late learners no plan is needed."""

    def __init__(self, term: Term, computation: Computation, pipeline: ReplayPipeline) -> None:
        self._config, self._run, self._training = term.config, term.run, term.training
        self._computation, self._pipeline = computation, pipeline
        self._watchdog = term.watchdog
        self._member: Member | None = None
        self._cancellation = Cancellation("the run is told to stop")

    async def assemble(self, *, resumed: bool) -> None:
        """Return: this process is the only learner."""

    async def settle(self, iteration: int) -> None:
        """Join as a learner and take every row, before the first round."""
        rows = self._computation.rows
        if self._member is None:
            self._member = self._join()
            self._run.membership.begin_epoch(
                RowAssignment(
                    epoch=0,
                    requested=self._config.code,
                    code=self._computation.code,
                    holders=dict.fromkeys(rows, self._member),
                    members=1,
                    placement=Placement(holders=(0,) * len(rows), shared=0, changed=0),
                )
            )

    def _join(self) -> Member:
        run, host = self._run, socket.gethostname()
        domain = tuple((self._config.learner.domain or host).split("/"))
        now, committed = asyncio.get_running_loop().time(), run.progress.committed
        member = run.roster.join(host, now=now, domain=domain, since=committed)
        run.event_log.append(Joined(term=run.identity.term, learner=member.learner))
        run.roster.ready(member, numerics=self._numerics(), stable=True)
        return member

    def _numerics(self) -> Numerics:
        """The numerics of the run, which are this process's.

        Raises:
            ConfigError: The run was begun with others.
        """
        numerics, own = self._run.roster.numerics, own_numerics(self._config, self._training)
        if numerics is not None and numerics.identity != own.identity:
            raise ConfigError(
                f"the run has numeric fingerprint {numerics.identity}, this process has "
                f"{own.identity} ({own.fingerprint}): resume it on such a machine with the version "
                f"that began it, or set audit.fingerprint={own.identity} to go on with other bits"
            )
        return numerics or own

    async def observe(self, record: IterationRecord) -> None:
        """Return: no deadline follows from the times of rounds without waiting."""

    async def audit(self, durable: Callable[[], Awaitable[None]]) -> None:
        """Return: no other process reports these units."""

    async def compute(self, sample: Sample) -> DecidedRound:
        """Compute the updates of a sample, after playing ahead.

        Raises:
            NotDecodable: All rows of the code do not determine the updates.
        """
        opened, clock = self._open(sample), asyncio.get_running_loop().time
        with closing(self._run.reception):
            if self._config.collect.lag:
                await self._pipeline.finish_playing()
            began_at = clock()
            with self._watchdog.phase("computing"):
                computed = await self._in_thread(sample)
            emulated_s = self._config.compute.emulate_unit_s * self._computation.load
            await asyncio.sleep(max(0.0, emulated_s - (clock() - began_at)))
        reach("round.decided")
        timeline = _timeline(opened, computed, began_s=began_at - opened.began_at)
        reports, exact = computed.decision.reports, self._training.problem.data.exact
        vouched = {CONTROLLER: range(len(reports))} if exact else {}  # it has computed every unit
        if self._member is not None:
            self._member.heard_at = clock()
        return DecidedRound(
            ids=self._run.identity.ids(opened),
            code=self._computation.code,
            decision=computed.decision,
            evidence=Evidence(sample=sample, digests=reports, reports=vouched),
            timeline=timeline,
            dispatched_at=opened.began_at,
            received=(LEARNER,),
            condition=computed.condition,
        )

    def _open(self, sample: Sample) -> OpenRound[Member]:
        """Open the reception, for the status alone, and record that all rows are assigned."""
        run, code = self._run, self._computation.code
        assignment = run.membership.assignment
        assert assignment is not None  # settled
        round_ = open_round(self._training.problem, sample.iteration, code, seed=self._config.seed)
        now = asyncio.get_running_loop().time()
        opened = OpenRound(round_, assignment, members=run.roster, began_at=now)
        run.reception.open(opened)
        run.assigned(opened, ((row, LEARNER) for row in self._computation.rows))
        return opened

    async def _in_thread(self, sample: Sample) -> ComputedRound:
        """Compute on a thread; once cancelled, return when the thread has stopped."""
        compute = partial(self._computation.compute, sample, self._cancellation.check)
        computing = asyncio.get_running_loop().run_in_executor(None, compute)
        try:
            return await asyncio.shield(computing)
        except asyncio.CancelledError:
            self._cancellation.ask()
            await asyncio.wait({computing})
            computing.exception()  # retrieved
            raise


def _timeline(opened: OpenRound[Member], computed: ComputedRound, *, began_s: float) -> Timeline:
    """The times of a round whose only learner sends nothing; emulated time is computing time."""
    timeline = Timeline(began_at=opened.began_at)
    timeline.rows[LEARNER], timeline.assigned_s[LEARNER] = 0, began_s
    started_s, done_s = began_s + computed.gather_s, timeline.elapsed_s()
    timeline.started_s[LEARNER], timeline.compute_s[LEARNER] = started_s, done_s - started_s
    timeline.sent_s[LEARNER] = timeline.arrival_s[LEARNER] = timeline.decodable_s = done_s
    return timeline


def main(launch: Launch) -> int:
    """Start or resume the configured run in this process; returns the exit code.

    Without ``launch.until_finished`` it serves the finished run until told to stop; with it, a run
    that is told to stop before its end returns ``STOPPED``.
    """
    if launch.run_dir is None:
        raise ConfigError("a run in one process is kept on disk; give --run-dir")
    import torch

    tune_process(launch)
    torch.set_num_threads(launch.config.compute.threads)
    finished = run(serve(launch, launch.run_dir))
    return 0 if finished or not launch.until_finished else STOPPED


async def serve(launch: Launch, run_dir: Path, stop: asyncio.Event | None = None) -> bool:
    """Run until ``stop`` is set, by default until the process is told to stop.

    Returns:
        True if the run is finished.

    Raises:
        FullrankError: The run cannot begin, or it failed.
    """
    stop = stop or stop_event(launch)
    try:
        async with Health(launch.config.health.address) as health:
            return await _serve(launch, run_dir, stop=stop, health=health)
    except FullrankError as error:
        record_failure(error, launch.config, run_dir)
        raise


async def _serve(launch: Launch, run_dir: Path, *, stop: asyncio.Event, health: Health) -> bool:
    config = launch.resolved.check().config
    refuse_free(config)
    if config.store.url:
        raise ConfigError(
            "store.url lets a controller with a replay service go on anywhere, and a run in one "
            "process has its transitions here: use `fullrank checkpoint export`"
        )
    async with AsyncExitStack() as stack:
        directory, training = stack.enter_context(held(config, run_dir))
        group = stack.enter_context(ranks_of(config, training))
        restored = restore(directory, training)
        security = Security.configured(config.tls, Role.CONTROLLER)
        table = LocalTable(directory.path, sync=config.replay.acknowledge == "fsync")
        stack.enter_context(closing(table))
        opened = open_term(
            config, directory, training, restored, replay_address="", observers=launch.observers
        )
        term = stack.enter_context(opened)
        beside = _beside(config, training)
        if beside is not None and group is None:
            beside.run_beside(stack.enter_context(ThreadPoolExecutor(1)))
        # Where nothing is shared, the next rows are played while the minibatch is computed.
        foresees = beside is not None and _foresees(config, training)
        holds = table.holds if foresees else None
        own = OwnPlayback(term, table)
        pipeline = ReplayPipeline(term, table, own, holds=holds, report=launch.report)
        computation = Computation(config, training, table, group)
        driver = Driver(term, pipeline, LocalRounds(term, computation, pipeline))
        ports = ControllerPorts(term=term, driver=driver, security=security)
        await stack.enter_async_context(ports.open_observation())
        await health.at_work(True)
        stack.push_async_callback(health.at_work, False)
        heartbeat_s = config.controller.heartbeat_s
        endings: list[Coroutine[Any, Any, object]] = [
            stop.wait(),
            term_raised(directory, every_s=heartbeat_s),
        ]
        await drive(
            driver,
            term.run,
            restored,
            endings,
            liveness=expel_silent((), config.controller, term.watchdog),
            on_finished=partial(finish, launch.config, directory),
            until_finished=launch.until_finished,
        )
        return term.run.progress.finished


def _beside(config: RunConfig, training: Training) -> Divided | None:
    """Gradients for a second thread, if a core is left beside those of the ranks."""
    gradients, threads = training.algorithm.gradients, config.compute.threads
    is_left = usable_cores() >= (config.ranks.count + 1) * threads
    return gradients if is_left and isinstance(gradients, Divided) else None


def _foresees(config: RunConfig, training: Training) -> bool:
    """Tell if every iteration collects equally many rows, with its own parameters."""
    every = training.collector.collection.rows and training.trainer.updates == 1
    return bool(every) and not config.collect.lag
