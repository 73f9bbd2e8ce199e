"""Claim: a round on one host takes at most 1.4 times as long as its bytes through bare streams.

M = N = 8, uncoded, the sections and vectors of cooperative navigation, and an algorithm whose
updates cost no time. The bare streams move the bytes of a round that shares no memory between the
same ten processes: a server writes to eight clients over one bidirectional gRPC stream each and
reads their answers, and every client asks a second server for a minibatch of one transition in
between, once as raw bytes and once as protobuf messages. All run in turn. A table beside them has
the bytes of an entry of the vectors of every code.

    python benchmarks/round_overhead.py --rounds 200
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from bare_streams import Bare, bare
from fullrank.algorithms.base import EnvironmentSpec, algorithms, layout_of
from fullrank.algorithms.problem import DataMode, Problem, Section, Unit
from fullrank.algorithms.roles import Algorithm, Memory
from fullrank.codes import codes, make_code
from fullrank.common.errors import CodeError
from fullrank.common.rows import Rows
from fullrank.common.seeding import stream
from fullrank.common.types import BoolArray, FloatArray, UnitIndex
from fullrank.common.updates import snap
from fullrank.environments import make_environment
from fullrank.planning.costs import FLOAT64_BYTES, Payload, entry_bytes
from fullrank.runs.record import IterationRecord
from local_services import train

AGENTS = 8
CLAIM, REPEATS = 1.4, 3
BYTES_ALONE = (
    f"learners={AGENTS}",
    f"environment.agents={AGENTS}",
    "code.name=uncoded",
    "algorithm.name=constant",
    "collect.warmup=100",
    "collect.warmup_copies=4",
    "collect.steps=1",
    "checkpoint.every=1000",
)
"""Settings of a run in which only the round itself costs time."""
FORMULA = ("parameters", "coded", "digests")
TOLERANCES = (0, 1, 2, 3, 7)
"""Of the codes whose parameters set one."""
FRAMING = 0.01
"""Share that headers may add to the payload."""
POLICY, CRITIC = 7_621, 31_425
"""Entries of a policy (48-64-64-5) and a critic (424-64-64-1)."""
ROLES = {"policy": POLICY, "critic": CRITIC, "target_policy": POLICY, "target_critic": CRITIC}


class Constant:
    """All roles of an algorithm whose updates are ready before they are asked for."""

    def __init__(self, problem: Problem, *, actions: int, seed: int) -> None:
        count, self._actions = len(problem.units), actions
        self._views = [np.zeros(section.size, np.float32) for section in problem.sections]
        draws = stream(seed, "constant").standard_normal((count, POLICY + CRITIC))
        self._updates = snap((0.01 * draws).astype(np.float32))

    def view(self, section: int) -> FloatArray:
        return self._views[section]

    def written(self) -> None:
        pass

    def compute(
        self,
        batch: FloatArray,
        units: Sequence[UnitIndex],
        *,
        iteration: int,
        row: int | None = None,
        check_cancelled: Callable[[], None] = lambda: None,
    ) -> Iterator[tuple[UnitIndex, FloatArray]]:
        check_cancelled()
        yield from ((unit, self._updates[unit]) for unit in units)

    def fingerprint(self) -> str:
        return "constant"

    def step(self, targets: Rows) -> Mapping[str, float]:
        return {}

    def state(self) -> Mapping[str, np.ndarray[Any, Any]]:
        return {}

    def load(self, state: Mapping[str, np.ndarray[Any, Any]]) -> None:
        pass

    def memory(self, copies: int) -> Memory:
        return ()

    def act(
        self,
        observation: FloatArray,
        memory: Memory,
        *,
        iteration: int,
        step: int,
        alive: BoolArray,
        available: BoolArray | None = None,
    ) -> tuple[FloatArray, Memory]:
        return self.act_greedily(observation, memory)

    def act_greedily(
        self, observation: FloatArray, memory: Memory, *, available: BoolArray | None = None
    ) -> tuple[FloatArray, Memory]:
        return np.zeros((len(observation), self._actions), np.float32), memory

    def policy(self, agent: int) -> tuple[FloatArray, ...]:
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstantConfig:
    """Configuration of the benchmark's algorithm."""

    batch_size: int = 1

    def data_mode(self) -> DataMode:
        return DataMode(batch_size=self.batch_size)

    def problem(self, environment: EnvironmentSpec) -> Problem:
        """Sections and sizes of MADDPG."""
        count = len(environment.agents)
        pairs = [(role, agent) for role in ROLES for agent in range(count)]
        reads = tuple(
            tuple(
                number
                for number, (role, agent) in enumerate(pairs)
                if role == "target_policy" or agent == unit
            )
            for unit in range(count)
        )
        return Problem(
            units=tuple(Unit((agent,)) for agent in range(count)),
            unit_sizes=(POLICY + CRITIC,) * count,
            sections=tuple(
                Section(id=number, role=role, agents=(agent,), size=ROLES[role])
                for number, (role, agent) in enumerate(pairs)
            ),
            reads=reads,
            row_size=layout_of(environment.agents).row_size,
            data=self.data_mode(),
        )

    def make(self, environment: EnvironmentSpec, *, seed: int, device: str) -> Algorithm:
        problem = self.problem(environment)
        actions = sum(agent.action.size for agent in environment.agents)
        roles = Constant(problem, actions=actions, seed=seed)
        return Algorithm(
            problem=problem, parameters=roles, gradients=roles, optimiser=roles, actor=roles
        )


def prepare() -> None:
    """Register the algorithm in a service process."""
    algorithms.register("constant")(ConstantConfig)


class Run(NamedTuple):
    """The steady rounds of a run."""

    records: Sequence[IterationRecord]

    @property
    def round_s(self) -> float:
        """Median seconds of a round."""
        return median(record.round_s for record in self.records)

    def sizes(self) -> dict[str, float]:
        """Median bytes of a round through streams, by kind."""
        kinds = [{**record.bytes_sent, **record.bytes_received} for record in self.records]
        return {kind: median(sizes.get(kind, 0) for sizes in kinds) for kind in FORMULA}

    def phases(self) -> dict[str, float]:
        """Median seconds since the first assignment at which the last learner ended a phase."""
        return {
            "all rows assigned": self._last("assigned_s"),
            "sections and minibatches read": self._last("started_s"),
            "vectors written": self._last("sent_s"),
            "vectors received": self._last("arrival_s"),
            "decoded and verified": median(
                (record.decodable_s or 0.0) + record.decode_s for record in self.records
            ),
            "update applied": self.round_s,
        }

    def _last(self, field: str) -> float:
        return float(median(max(getattr(record, field).values()) for record in self.records))


def run(rounds: int, *, sidecar: Sequence[str] | None = None) -> Run:
    """Run real services, through a sidecar if settings of one are given."""
    with tempfile.TemporaryDirectory() as scratch:
        settings = [f"iterations={rounds}", *BYTES_ALONE]
        records, _ = train(Path(scratch) / "run", settings, prepare=prepare, sidecar=sidecar)
    return Run(records[rounds // 10 :])


def formula() -> dict[str, int]:
    """Bytes of a round by kind, by the formula that the planner uses."""
    specs = make_environment("cooperative_navigation", agents=AGENTS, copies=1).agents
    problem = ConstantConfig().problem(EnvironmentSpec(agents=tuple(specs)))
    moved = Payload.of(problem).traffic(np.eye(AGENTS))
    return {kind: int(getattr(moved, kind).sum()) for kind in FORMULA}


def print_entry_bytes(learners: int = 15, units: int = 8) -> None:
    """Print the bytes of an entry of each code's vectors, float64 throughout and as it is sent."""
    print(f"\n| N = {learners}, M = {units} | vectors | of one unit | bytes an entry |")
    print("|---|---|---|---|")
    for name in codes:
        for losses in TOLERANCES:
            params = codes.build(name).tolerating(losses)
            with suppress(CodeError):
                code = make_code(name, rows=learners, units=units, **params or {})
                sizes = entry_bytes(code.matrix[code.matrix.any(axis=1)])
                label = f"`{name}`" + (f" s = {losses}" if params else "")
                alone = int((sizes < FLOAT64_BYTES).sum())
                print(
                    f"| {label} | {len(sizes)} | {alone} | {FLOAT64_BYTES} -> {sizes.mean():.1f} |"
                )
            if params is None:
                break


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    rounds = parser.parse_args().rounds
    whole: list[Run] = []
    times: dict[bool, list[float]] = {False: [], True: []}
    expected = formula()
    share, answer = expected["parameters"] // AGENTS, expected["coded"] // AGENTS
    for _ in range(REPEATS):
        whole.append(run(rounds))
        for protobuf, measured in times.items():
            load = Bare(
                protobuf=protobuf, rounds=rounds, share=share, answer=answer, clients=AGENTS
            )
            measured.append(bare(load))
    rounds_s = [each.round_s for each in whole]
    ratio, loose = (sum(rounds_s) / sum(times[protobuf]) for protobuf in (False, True))
    print(f"| M = N = {AGENTS}, uncoded, compute ~ 0 | median of each turn, ms | ratio |")
    print("|---|---|---|")
    print(f"| whole round, memory shared | {_ms(rounds_s)} | |")
    print(f"| bare streams of raw bytes | {_ms(times[False])} | {ratio:.2f} (<= {CLAIM}) |")
    print(f"| bare streams of protobuf messages | {_ms(times[True])} | {loose:.2f} |")
    print("\n| end of a phase for the last learner | median of each turn, ms |\n|---|---|")
    for phase in whole[0].phases():
        print(f"| {phase} | {_ms([each.phases()[phase] for each in whole])} |")
    streamed = run(max(20, rounds // 10), sidecar=()).sizes()
    excess = {kind: streamed[kind] / size - 1.0 for kind, size in expected.items()}
    print("\n| bytes through streams | memory shared | through a proxy | formula | excess |")
    print("|---|---|---|---|---|")
    for kind, size in expected.items():
        shared = f"{whole[-1].sizes()[kind]:.0f}"
        print(f"| {kind} | {shared} | {streamed[kind]:.0f} | {size} | {excess[kind]:.2%} |")
    print_entry_bytes()
    return int(ratio > CLAIM or max(map(abs, excess.values())) > FRAMING)


def _ms(times: Sequence[float]) -> str:
    return ", ".join(f"{1e3 * time_s:.1f}" for time_s in times)


if __name__ == "__main__":
    sys.exit(main())
