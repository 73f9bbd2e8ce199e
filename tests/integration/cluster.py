"""A controller, a replay service and learners in one event loop, on loopback ports of their own."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil
import pytest
from tests.fakes import Ending, FakeLearner, Fault
from tests.faultlab.history import read_history
from tests.faultlab.invariants import violations
from tests.faultlab.simulation import toy_algorithm
from tests.waiting import LOOK_S, WAIT_S, eventually

from fullrank.audit.ledger import AuditDraws
from fullrank.common.errors import FullrankError, ServiceLost
from fullrank.config import Resolved, RunConfig, load
from fullrank.host.certificates import Role
from fullrank.host.process import Launch
from fullrank.host.run_directory import port_of, resolve
from fullrank.local import LocalRun
from fullrank.net.channel import Security
from fullrank.net.controller_client import ControllerClient
from fullrank.runs.checkpoint import newest
from fullrank.runs.journal import Journal
from fullrank.runs.record import IterationRecord, read_records
from fullrank.v1 import controller_pb2 as pb
from fullrank.wiring.training import training_of
from fullrank_collector.server import attach as attach_collector
from fullrank_controller.rounds import timeline
from fullrank_controller.server import serve as serve_controller
from fullrank_learner.server import attach
from fullrank_replay.server import serve as serve_replay

assert toy_algorithm  # importing it registers the algorithm

log = logging.getLogger(__name__)

TINY = (
    "iterations=4",
    "environment.copies=2",
    "environment.horizon=5",  # episodes end with the iteration, so that resuming changes nothing
    "collect.steps=5",
    "collect.warmup=64",
    "collect.warmup_copies=8",
    "replay.capacity=4096",
    "checkpoint.every=1",
    f"controller.deadline_s={WAIT_S}",
    f"controller.lost_after_s={2 * WAIT_S}",  # fakes send no heartbeats
    f"replay.deadline_s={WAIT_S}",
    "metrics.sinks=[]",
    *(f"{name}.address=127.0.0.1:0" for name in ("controller", "monitor", "replay", "sidecar")),
    "sidecar.control=127.0.0.1:0",
)
"""Overrides for rounds of some milliseconds."""
NETWORKS = ("algorithm.batch_size=16", "algorithm.hidden=16")
"""Sizes of the default algorithm, which recovers the update of each of three agents: T = I."""
SUM = ("algorithm.name=summed_toy", "algorithm.batch_size=8", "environment.agents=4")
"""An algorithm that recovers the sum of four units: T = 1^T."""


def tiny(*overrides: str) -> Resolved:
    """The tiny configuration with overrides, among them the algorithm's sizes."""
    return load(None, environ={}, overrides=[*TINY, *overrides]).check()


def resolved(*overrides: str) -> Resolved:
    """The tiny configuration of the default algorithm with overrides."""
    return tiny(*NETWORKS, *overrides)


def reference_digests(config: RunConfig) -> list[str]:
    """Update digests of the same run in one process, without a network."""
    return [iteration.update_digest for iteration in LocalRun(config).train()]


def centralised(config: RunConfig) -> tuple[list[str], str]:
    """Update digests and digest of the final parameters of the run without learners."""
    run = LocalRun(config, coded=False)
    return [iteration.update_digest for iteration in run.train()], run.parameter_digest()


def foresee_audits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Audit the last iteration of each window, recompute unit 0, and await reports for ever."""
    monkeypatch.setattr(
        AuditDraws,
        "below",
        lambda draws, count, purpose, *indices: count - 1 if purpose == "audit" else 0,
    )
    monkeypatch.setattr(timeline, "PATIENCE", inf)


@dataclass(slots=True)
class Service:
    """A running service."""

    task: "asyncio.Task[None]"
    stop: asyncio.Event

    async def end(self) -> None:
        """Stop it as SIGTERM would; raises the error that it failed with."""
        self.stop.set()
        async with asyncio.timeout(WAIT_S):
            await self.task


@dataclass(slots=True)
class Cluster:
    """Services of the run in ``run_dir``; all end with the context."""

    run_dir: Path
    settings: Resolved
    updates: int = 1
    """K, updates over a collection."""
    services: list[Service] = field(default_factory=list)
    fakes: list["asyncio.Task[Ending]"] = field(default_factory=list)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for fake in self.fakes:
            fake.cancel()
        for service in self.services:
            service.stop.set()
        tasks = [*self.fakes, *(service.task for service in self.services)]
        await asyncio.gather(*tasks, return_exceptions=True)
        if error is None:
            stored = bool(self.config.store.url)
            history = read_history(self.run_dir, stored=stored, updates=self.updates)
            found = violations(history)
            assert not found, found

    @property
    def config(self) -> RunConfig:
        """The resolved configuration."""
        return self.settings.config

    @property
    def launch(self) -> Launch:
        """Settings with which services are launched, by a parent that sees how they end."""
        return Launch(resolved=self.settings, run_dir=self.run_dir, stop_with_stdin=True)

    def security(self, role: Role) -> Security:
        """Credentials of a role in the run."""
        return Security.configured(self.config.tls, role)

    def replay(self) -> Service:
        """Start the replay service."""
        stop = asyncio.Event()
        return self.start(stop, serve_replay(self.launch, stop))

    def controller(self) -> Service:
        """Start the controller."""
        stop = asyncio.Event()
        return self.start(stop, serve_controller(self.launch, self.run_dir, stop))

    def learner(self) -> Service:
        """Start a real learner that dials until it is ended."""
        return self.attached(self.launch)

    def attached(self, launch: Launch) -> Service:
        """Start a learner with settings of its own."""
        stop = asyncio.Event()
        return self.start(stop, attach(launch, stop))

    def learner_in(self, domain: str) -> Service:
        """Start a real learner in a failure domain."""
        settings = replace(self.config.learner, domain=domain)
        resolved = replace(self.settings, config=replace(self.config, learner=settings))
        return self.attached(replace(self.launch, resolved=resolved))

    def learners(self, count: int) -> list[Service]:
        """Start the given number of learners."""
        return [self.learner() for _ in range(count)]

    def serve(self, learners: int = 0) -> None:
        """Start replay, the controller and so many learners."""
        self.replay()
        self.controller()
        self.learners(learners)

    def collector(self) -> Service:
        """Start a real collector that dials until it is ended."""
        stop = asyncio.Event()
        return self.start(stop, attach_collector(self.launch, stop))

    def start(self, stop: asyncio.Event, serving: Coroutine[Any, Any, None]) -> Service:
        """Run a service of another kind until ``stop``."""
        service = Service(asyncio.create_task(serving), stop)
        self.services.append(service)
        return service

    async def fake(
        self, fault: Fault, *, at: int = 0, process: bytes = b"", domain: str = ""
    ) -> tuple[FakeLearner, "asyncio.Task[Ending]"]:
        """Attach a fake learner; its index is the lowest free one."""
        security = self.security(Role.LEARNER)
        fake = FakeLearner(await self.address(), fault, at, security, process)
        fake.domain = domain or fake.domain
        task = asyncio.create_task(fake.run())
        self.fakes.append(task)
        await asyncio.wait_for(fake.greeted.wait(), WAIT_S)
        return fake, task

    async def address(self) -> str:
        """The controller's address, once it is announced."""
        await eventually(lambda: self._address() is not None, what="the controller listens")
        address = self._address()
        assert address is not None
        return address

    def _address(self) -> str | None:
        self._raise_failures()
        try:
            return resolve(self.config.controller.address, self.run_dir, "controller")
        except ServiceLost:
            return None

    def _raise_failures(self) -> None:
        for service in self.services:
            if service.task.done() and not service.stop.is_set():
                service.task.result()
        for fake in self.fakes:
            if fake.done():
                fake.result()

    async def status_when(
        self, condition: Callable[[pb.GetStatusResponse], bool], *, what: str
    ) -> pb.GetStatusResponse:
        """The first status that meets ``condition``, also of a controller that begins again."""
        status, client = None, await self._dial()
        try:
            async with asyncio.timeout(WAIT_S):
                while True:
                    self._raise_failures()
                    try:
                        if condition(status := await client.status()):
                            return status
                    except ServiceLost as error:
                        await client.close()
                        self._check_listening(error)
                        client = await self._dial()
                    await asyncio.sleep(LOOK_S)
        except TimeoutError:
            raise AssertionError(f"no status within {WAIT_S} s: {what}; last {status}") from None
        finally:
            await client.close()

    def _check_listening(self, error: ServiceLost) -> None:
        """A controller that is lost has ended, begins again or listens where it announces."""
        self._raise_failures()
        announced = self._address()
        listening = {
            connection.laddr.port
            for connection in psutil.Process().net_connections("tcp")
            if connection.status == psutil.CONN_LISTEN
        }
        log.warning("dialling_again announced=%s reason=%s", announced, error)
        fixed = not self.config.controller.address.endswith(":0")
        assert fixed or announced is None or port_of(announced) in listening, str(error)

    async def _dial(self) -> ControllerClient:
        return ControllerClient(await self.address(), security=self.security(Role.MONITOR))

    async def ready(self, count: int) -> pb.GetStatusResponse:
        """The status when ``count`` learners have sent their probe."""
        return await self.status_when(
            lambda status: sum(bool(each.fingerprint) for each in status.learners) == count,
            what=f"{count} learners ready",
        )

    async def finished(self) -> pb.GetStatusResponse:
        """The status when every iteration is committed."""
        return await self.status_when(
            lambda status: status.state == pb.RUN_STATE_FINISHED, what="finished"
        )

    def records(self) -> list[IterationRecord]:
        """Records in metrics.jsonl."""
        return read_records(self.run_dir / "metrics.jsonl")

    def digests(self) -> list[str]:
        """Digests of the committed updates."""
        return [record.update_digest for record in self.records()]

    async def train(self) -> pb.GetStatusResponse:
        """Start all services; the status when every iteration is committed."""
        self.serve(self.config.learners)
        return await self.finished()

    async def committed(self, count: int) -> None:
        """Wait until so many iterations are committed."""
        await self.status_when(
            lambda status: status.iterations_committed == count, what=f"{count} committed"
        )

    async def run_out_of_disk(self, iteration: int, monkeypatch: pytest.MonkeyPatch) -> None:
        """Start all services; the controller fails as the disk refuses the journal's entry."""
        append = Journal.append

        def full(journal: Journal, number: int, **what: Any) -> None:
            if number == iteration:
                raise FullrankError("no space left")
            append(journal, number, **what)

        with monkeypatch.context() as patch:
            patch.setattr(Journal, "append", full)
            self.replay()
            controller = self.controller()
            self.learners(self.config.learners)
            with pytest.raises(FullrankError, match="no space left"):
                await asyncio.wait_for(controller.task, WAIT_S)

    def outcome(self) -> tuple[list[str], str]:
        """Committed update digests, and digest of the parameters in the newest checkpoint."""
        training = training_of(self.config)
        checkpoint = newest(self.run_dir / "checkpoints")
        training.load(checkpoint.arrays, resume_at=checkpoint.iteration + 1)
        return self.digests(), training.trainer.digest()
