"""Runs with collectors for tests: settings, the run without collectors, and a fake collector."""

from collections.abc import Awaitable, Callable, Sequence
from functools import cache

import pytest
from tests.faultlab.history import read_history
from tests.integration.cluster import Cluster
from tests.waiting import WAIT_S

from fullrank import __version__
from fullrank.common.errors import ServiceLost
from fullrank.config import Resolved, load
from fullrank.host.certificates import Role
from fullrank.local import LocalRun
from fullrank.net.controller_client import ControllerClient
from fullrank.net.errors import translated
from fullrank.replay.staging import rows_digest
from fullrank.runs.events import BlockAssigned
from fullrank.training.block_player import PlayedBlock, PlayTerms
from fullrank.training.blocks import BlockKey
from fullrank.training.worker import probe_of
from fullrank.v1 import controller_pb2 as pb
from fullrank.wiring.training import initial_algorithm, training_of
from fullrank_collector.run_context import TimedPlayer

SMALL = (
    "iterations=4",
    "learners=2",
    "environment.copies=5",
    "collect.mode=keyed",
    "collect.block=2",
    "collect.warmup=40",
    "collect.warmup_copies=4",
    "collectors.count=2",
    "replay.capacity=4096",
    "checkpoint.every=2",
    f"controller.deadline_s={WAIT_S}",
    f"controller.lost_after_s={2 * WAIT_S}",
    f"replay.deadline_s={WAIT_S}",
    "metrics.sinks=[]",
    "algorithm.hidden=12",
)
VALUES = (
    *SMALL,
    "algorithm.name=qmix",
    "algorithm.micro_batches=2",
    "algorithm.batch_size=8",
    "algorithm.exploration_steps=100",
    "environment.name=switch_riddle",
    "environment.agents=3",
    "code.name=uncoded",
)
ACTORS = (*SMALL, "algorithm.batch_size=16", "environment.agents=2", "code.name=uncoded")


def settings(*overrides: str) -> Resolved:
    return load(None, environ={}, overrides=overrides).check()


@cache
def alone(overrides: tuple[str, ...]) -> tuple[list[str], str]:
    """Update digests and parameters of the run in one process, which plays every block itself."""
    run = LocalRun(settings(*overrides).config, coded=False)
    return [iteration.update_digest for iteration in run.train()], run.parameter_digest()


def services(cluster: Cluster) -> None:
    """Start all but the collectors."""
    cluster.serve(cluster.config.learners)


def assigned(cluster: Cluster) -> list[BlockAssigned]:
    history = read_history(cluster.run_dir)
    return [event for event in history.controller if isinstance(event, BlockAssigned)]


class FakeCollector:
    """Speaks the protocol and answers as it likes."""

    def __init__(self, cluster: Cluster, ready: pb.Ready) -> None:
        self._cluster, self._ready = cluster, ready

    async def run(
        self,
        answer: Callable[[pb.Play], Awaitable[list[bytes]]],
        *,
        unasked: Sequence[bytes] = (),
    ) -> None:
        """Attach, send what nobody has asked for, and answer each block.

        Raises:
            FullrankError: The controller ended the stream.
        """
        security = self._cluster.security(Role.COLLECTOR)
        client = ControllerClient(await self._cluster.address(), security=security)
        try:
            with translated("controller"):
                call = client.collect()
                hello = pb.Hello(version=__version__, host="fake")
                await call.write(pb.CollectorMessage(hello=hello).SerializeToString())
                order = await call.read()
                await call.write(pb.CollectorMessage(ready=self._ready).SerializeToString())
                for message in unasked:
                    await call.write(message)
                while isinstance(order := await call.read(), pb.CollectorOrder):
                    if order.WhichOneof("message") == "play":
                        for message in await answer(order.play):
                            await call.write(message)
                raise ServiceLost(await call.details())
        finally:
            await client.close()


async def no_block(play: pb.Play) -> list[bytes]:
    raise AssertionError(f"it was assigned {play}")


def ready_of(cluster: Cluster) -> pb.Ready:
    """Readiness with the numerics of the run."""
    training = training_of(cluster.config)
    algorithm = initial_algorithm(cluster.config, training)
    digests = probe_of(algorithm, training.collector.agents, seed=cluster.config.seed).digests
    training.collector.close()
    return pb.Ready(fingerprint=algorithm.gradients.fingerprint(), probe=digests, stable=True)


class Lying:
    """Lets the first collector that plays pass other episodes off as the third block it plays."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lies = list[str]()
        self._liar: TimedPlayer | None = None
        self._blocks, honest = 0, TimedPlayer.play

        async def play(player: TimedPlayer, key: BlockKey, terms: PlayTerms) -> PlayedBlock:
            self._liar = self._liar or player
            self._blocks += player is self._liar
            if player is not self._liar or self._blocks != 3:
                return await honest(player, key, terms)
            lie = await honest(player, key._replace(iteration=key.iteration + 1), terms)
            self.lies.append(rows_digest(lie.rows).hex())
            return lie

        monkeypatch.setattr(TimedPlayer, "play", play)
