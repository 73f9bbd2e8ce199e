"""Small overhead: a whole round against the same bytes through bare gRPC streams.

M = N = 8, uncoded, the sections and vectors of cooperative navigation, and an algorithm whose
updates cost nothing. "Bare" is a server that writes the same number of bytes to eight client
processes over one bidirectional stream each, in messages of the same size, and reads the same
number of bytes back. Both run twice, in turn.

Usage: python benchmarks/round_overhead.py [--rounds 200]
"""

import argparse
import asyncio
import multiprocessing
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

import grpc
import numpy as np

from fullrank.algorithms.base import Section, algorithms
from fullrank.environments.base import AgentSpec
from fullrank.rpc.channel import CHANNEL_OPTIONS
from fullrank.rpc.codec import CHUNK_BYTES
from fullrank.rpc.server import OPTIONS
from fullrank.seeding import stream
from fullrank.types import BoolArray, FloatArray, Unit
from fullrank.updates import snap
from local_services import train

AGENTS = 8
CLAIM = 1.5
POLICY, CRITIC = 7_621, 31_425
"""Entries of a policy (48-64-64-5) and a critic (424-64-64-1)."""
ROLES = {"policy": POLICY, "critic": CRITIC, "target_policy": POLICY, "target_critic": CRITIC}


class Constant:
    """Sections and sizes of MADDPG; its updates are ready before they are asked for."""

    def __init__(self, agents: Sequence[AgentSpec], *, seed: int) -> None:
        self.units = len(agents)
        self.sections = tuple(
            Section(id=number, role=role, unit=unit, size=ROLES[role])
            for number, (role, unit) in enumerate(
                (role, unit) for role in ROLES for unit in range(self.units)
            )
        )
        self.unit_sizes = (POLICY + CRITIC,) * self.units
        self._actions = [agent.action.size for agent in agents]
        observations = sum(agent.observation_size for agent in agents)
        self.row_size = 2 * observations + sum(self._actions) + 3 * self.units
        self._views = [np.zeros(section.size, np.float32) for section in self.sections]
        draws = stream(seed, "constant").standard_normal((self.units, POLICY + CRITIC))
        self._updates = snap((0.01 * draws).astype(np.float32))

    def needs(self, unit: Unit) -> Sequence[int]:
        targets = [s.id for s in self.sections if s.role == "target_policy"]
        return targets + [s.id for s in self.sections if s.unit == unit and s.id not in targets]

    def view(self, section: int) -> FloatArray:
        return self._views[section]

    def written(self) -> None:
        pass

    def updates(
        self,
        batch: FloatArray,
        units: Sequence[Unit],
        *,
        iteration: int,
        proceed: Callable[[], None] = lambda: None,
    ) -> Iterator[tuple[Unit, FloatArray]]:
        proceed()
        yield from ((unit, self._updates[unit]) for unit in units)

    def apply(self, updates: FloatArray) -> None:
        pass

    def act(
        self, observation: FloatArray, *, iteration: int, step: int, alive: BoolArray
    ) -> FloatArray:
        return self.act_greedily(observation)

    def act_greedily(self, observation: FloatArray) -> FloatArray:
        return np.zeros((len(observation), sum(self._actions)), np.float32)

    def state(self) -> Mapping[str, np.ndarray[Any, Any]]:
        return {}

    def load(self, state: Mapping[str, np.ndarray[Any, Any]]) -> None:
        pass

    def fingerprint(self) -> str:
        return "constant"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstantConfig:
    """The benchmark's algorithm has one parameter."""

    batch_size: int = 1

    def make(self, agents: Sequence[AgentSpec], *, seed: int, device: str) -> Constant:
        return Constant(agents, seed=seed)


def prepare() -> None:
    """Make the algorithm known in a service process."""
    algorithms.register("constant")(ConstantConfig)


def ours(rounds: int) -> tuple[float, int, int]:
    """Median round time, bytes sent and received in a round."""
    with tempfile.TemporaryDirectory() as scratch:
        records, _ = train(
            Path(scratch) / "run",
            [
                f"iterations={rounds}",
                f"learners={AGENTS}",
                f"environment.agents={AGENTS}",
                "code.name=uncoded",
                "algorithm.name=constant",
                "collect.warmup=100",
                "collect.warmup_copies=4",
                "collect.steps=1",
                "checkpoint.every=1000000",
            ],
            prepare=prepare,
        )
    steady = records[rounds // 10 :]
    sent = int(median(sum(record.bytes_sent.values()) for record in steady))
    received = int(median(sum(record.bytes_received.values()) for record in steady))
    return median(record.round_s for record in steady), sent, received


def bare(rounds: int, *, sent: int, received: int) -> float:
    """Median time of the same bytes over bare streams."""
    context = multiprocessing.get_context("spawn")
    parent, child = context.Pipe()
    server = context.Process(target=_bare_server, args=(child, rounds, sent // AGENTS))
    server.start()
    port = parent.recv()
    clients = [
        context.Process(
            target=_bare_client, args=(port, rounds, sent // AGENTS, received // AGENTS)
        )
        for _ in range(AGENTS)
    ]
    for client in clients:
        client.start()
    times: list[float] = parent.recv()
    for process in (*clients, server):
        process.join()
    return median(times[rounds // 10 :])


def _pieces(total: int) -> list[bytes]:
    return [bytes(min(CHUNK_BYTES, total - start)) for start in range(0, total, CHUNK_BYTES)]


def _bare_server(pipe: Connection, rounds: int, share: int) -> None:
    asyncio.run(_serve_bare(pipe, rounds, share))


async def _serve_bare(pipe: Connection, rounds: int, share: int) -> None:
    ready, finished = asyncio.Semaphore(0), asyncio.Semaphore(0)
    turns = [asyncio.Event() for _ in range(rounds)]
    done = asyncio.Event()
    pieces = _pieces(share)

    async def work(requests: AsyncIterator[bytes], context: Any) -> None:
        ready.release()
        for turn in turns:
            await turn.wait()
            for piece in pieces:
                await context.write(piece)
            while not (await anext(requests)).endswith(b"\1"):
                pass
            finished.release()
        await done.wait()

    handler = grpc.stream_stream_rpc_method_handler(work)
    server = grpc.aio.server(options=OPTIONS)
    generic = grpc.method_handlers_generic_handler("Bare", {"Work": handler})
    server.add_generic_rpc_handlers((generic,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    pipe.send(port)
    for _ in range(AGENTS):
        await ready.acquire()
    times = []
    for turn in turns:
        started = time.perf_counter()
        turn.set()
        for _ in range(AGENTS):
            await finished.acquire()
        times.append(time.perf_counter() - started)
    done.set()
    pipe.send(times)
    await server.stop(1.0)


def _bare_client(port: int, rounds: int, share: int, answer: int) -> None:
    asyncio.run(_dial_bare(port, rounds, len(_pieces(share)), answer))


async def _dial_bare(port: int, rounds: int, expected: int, answer: int) -> None:
    pieces = _pieces(answer)
    pieces[-1] = pieces[-1][:-1] + b"\1"
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=CHANNEL_OPTIONS) as channel:
        call = channel.stream_stream("/Bare/Work")()
        for _ in range(rounds):
            for _ in range(expected):
                await call.read()
            for piece in pieces:
                await call.write(piece)
        await call.done_writing()
        await call.read()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    rounds = parser.parse_args().rounds
    first, sent, received = ours(rounds)
    bares = [bare(rounds, sent=sent, received=received)]
    second, _, _ = ours(rounds)
    bares.append(bare(rounds, sent=sent, received=received))
    ratio = (first + second) / sum(bares)
    print("| M = N = 8, uncoded, compute ~ 0 | median, ms |")
    print("|---|---|")
    print(f"| whole round (twice) | {1e3 * first:.1f}, {1e3 * second:.1f} |")
    print(f"| bare streams (twice) | {1e3 * bares[0]:.1f}, {1e3 * bares[1]:.1f} |")
    print(f"| ratio (at most {CLAIM}) | {ratio:.2f} |")
    print(f"| bytes sent / received in a round | {sent} / {received} |")
    return int(ratio > CLAIM)


if __name__ == "__main__":
    sys.exit(main())
