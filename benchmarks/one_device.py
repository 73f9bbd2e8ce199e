"""Claim: on one device a unit's bits do not depend on company, and equal the CPU's up to 1e-5.

The measurements of ``tools/gpu.py`` (``make gpu``): parts, each with its sizes, whose rows are
printed as lines of JSON; the row with ``took_s`` ends a part. A row ``failed`` with the event
``not_captured`` says that launches were timed in place of a graph. Times are wall times, medians of
a few calls, sample and optimiser included; ``times`` is a row's time over Fullrank's on the same
device, so above 1 is slower. Without arguments it measures the claim on a CPU, at sizes that show
that the program runs.

* ``company M H B``: bits of units alone, in threes, and all together; errors against the CPU,
  relative to the largest entry of a unit.
* ``updates M H B``: MADDPG's update beside that of TorchRL, with its buffer on the device, and of
  JAX, one compiled update a call and a scan of them (``jax_teams.py``).
* ``aps M H B``: agent-updates a second where collection overlaps, N B / max(T_DC, T_MU), eq. 1 of
  multi-GPU MADDPG (paper 004), and of the update alone, N B / T_MU; the update's share of the
  float32 peak, the rate of a large product in the same process, and what the paper says.
* ``overlap M H B``: whole runs that play before the update and beside it, in its process and in
  one of its own, which plays whole episodes.
* ``worlds M COPIES...``: steps of a particle task on the device and as arrays (``device_worlds``).
* ``qmix EPISODES STEPS``: its update on 3m in one unit and in eight, beside TorchRL's, JAX's and
  one in PyMARL's way.
* ``played EPISODES STEPS``: updates of IPPO, MAPPO and PQN on the device and on the CPU; bits of
  units alone, in threes and together, and errors of gradients against the CPU, as of ``company``;
  IPPO's beside TorchRL's and JAX's, whose minibatch lies on the device.
* ``ippo N``: ``examples/three_agents.toml`` on the device and on the CPU.
* ``whole N``: iterations a second of ``fullrank train --local`` with its defaults, on the device
  and on the CPU, and of the same run in JAX.
* ``goals N RETURN...``: seconds from the start of the process until the default run, and the same
  in JAX, reach each return in at most N iterations (``goals.py``).
* ``services N``: four learners on the device, without a straggler and with one a tenth of a second
  late, and one process there, which commit the same bits; and learners on the CPU.
* ``ranks N M H B``: one process on one card, and two ranks on two cards by nccl, each with half of
  the agents; and the same with two micro-batches, of which each rank has one, as in paper 004.

    python benchmarks/one_device.py
    python benchmarks/one_device.py --device cuda "updates 3 128 256" "aps 8 1024 4096"
"""

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import torch

import pymarl_qmix
import qmix_update
from captures import failed, refused_here, refused_in
from device_worlds import worlds
from fast_update import ACTIONS, Fullrank, Workload, torchrl
from fullrank.algorithms import Algorithm, EnvironmentSpec, algorithms
from fullrank.algorithms.devices import placed, visible
from fullrank.algorithms.maddpg import MADDPG
from fullrank.common.types import FloatArray
from fullrank.config import load as configured
from fullrank.environments import make_environment
from fullrank.networks.fused.kernels import Kernel
from fullrank.training.centralised import Centralised
from fullrank.training.worker import probe_batch
from fullrank.wiring.training import training_of
from goals import NAVIGATOR_OF_THREE, goals, goals_in_jax, run_in_jax

ROOT = Path(__file__).resolve().parents[1]
PUBLISHED = ROOT / "papers/004-multi-gpu-maddpg/fullrank_multi_gpu/published.toml"
NEAR = 1e-5
"""Largest error against the CPU, relative to the largest entry of a unit."""
CAPACITY = 10_000
"""Transitions in the tables that minibatches are drawn from."""
ROUNDS, SIDE = 5, {"cuda": 8192, "cpu": 1024}
"""Calls whose median counts, and side of the matrices whose product is the peak."""

Row = dict[str, Any]
Players = Callable[[], Iterable[tuple[str, Callable[[], object], int]]]
"""Makes players: name, call, and number of updates in it."""


def workload(agents: int, hidden: int, batch: int) -> Workload:
    """Alike agents that see as much as three navigators, or as the rovers of a Rover Tower."""
    tower = make_environment("rover_tower", agents=max(4, agents), copies=1)
    rover = max(agent.observation_size for agent in tower.agents)
    observation = NAVIGATOR_OF_THREE if agents == 3 else rover
    return Workload(
        agents=agents, observation=observation, hidden=hidden, batch=batch, capacity=CAPACITY
    )


def seconds(action: Callable[[], object], device: str) -> tuple[float, float]:
    """Median wall time of a call, the device's work included, and that of the first one."""
    times = []
    for _ in range(2 + ROUNDS):
        began = time.perf_counter()
        action()
        if device != "cpu":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter() - began)
    return statistics.median(times[2:]), times[0]


def compared(players: Mapping[str, Players], device: str, *, own_s: float = 0.0) -> Iterator[Row]:
    """Time all players; a peer that is not installed, or fails, is a row that says why.

    Args:
        players: They, by the name of their package.
        device: Where they compute.
        own_s: Time to compare with; by default that of the first player.
    """
    for source, made in players.items():
        try:
            for name, call, updates in made():
                median_s, first_s = seconds(call, device)
                own_s = own_s or median_s / updates
                times, ms = round(median_s / updates / own_s, 4), 1e3 * median_s / updates
                yield {"times": times, "player": name, "ms": ms, "first_s": round(first_s, 2)}
        except Exception as error:
            if source == "Fullrank":  # a peer's failure is its own
                raise
            how = "skipped" if isinstance(error, ImportError) else "failed"
            yield {"player": source, how: f"{type(error).__name__}: {error}"[:200]}


def updates(device: str, agents: int, hidden: int, batch: int) -> Iterator[Row]:
    load = workload(agents, hidden, batch)

    def jax() -> Iterable[Any]:
        from jax_teams import Team, maddpg

        return maddpg(Team(agents, load.observation, hidden, batch))

    yield from compared({**_torch_players(load, device), "JAX": jax}, device)


def _torch_players(load: Workload, device: str) -> dict[str, Players]:
    return {
        "Fullrank": lambda: [("Fullrank", Fullrank(load, device=device).update, 1)],
        "TorchRL": lambda: [("TorchRL", torchrl(load, device=device), 1)],
    }


def aps(device: str, agents: int, hidden: int, batch: int) -> Iterator[Row]:
    load, rate = workload(agents, hidden, batch), peak(device)
    collection_s = collection(device, agents, hidden)
    figure = tomllib.loads(PUBLISHED.read_text())["figure_6"]
    said = {(M, B): f"two H100 {speed} of one" for M, B, speed in figure}
    for row in compared(_torch_players(load, device), device):
        if "ms" in row:
            update_s = 1e-3 * row["ms"]
            row["aps"] = round(agents * batch / max(collection_s, update_s))
            row["updates_alone"] = round(agents * batch / update_s)
            row["collection_ms"] = 1e3 * collection_s
            row["of_peak"] = round(load.gflop(zeros=False) / update_s / rate, 3)
            row["paper"] = said.get((agents, batch), "not given")
        yield row


def collection(device: str, agents: int, hidden: int) -> float:
    """Seconds in which four towers play 25 steps, as multi-GPU MADDPG collects transitions."""
    sizes = (f"environment.agents={agents}", f"algorithm.hidden={hidden}", "collect.steps=25")
    where = (f"compute.device={device}", "environment.name=rover_tower", "environment.copies=4")
    numbers = count()
    with closing(
        training_of(configured(overrides=[*sizes, *where]).check().config).collector
    ) as player:

        def collect() -> None:
            player.publish(number := next(numbers))
            player.collect(number)

        return seconds(collect, device)[0]


def peak(device: str) -> float:
    """Rate of a product of two float32 matrices, GFLOP/s."""
    size = SIDE[device.partition(":")[0]]
    a, b = (torch.randn(size, size, device=device) for _ in range(2))
    with Kernel("default").active():
        return 2e-9 * size**3 / seconds(lambda: torch.mm(a, b), device)[0]


def overlap(device: str, agents: int, hidden: int, batch: int) -> Iterator[Row]:
    sizes = (f"environment.agents={agents}", f"algorithm.hidden={hidden}")
    words = ("environment.name=rover_tower", *sizes, f"algorithm.batch_size={batch}")
    apart = ("--collectors", "1", "--learners", "1", "--code", "uncoded")  # plays whole episodes
    for where, options, own in (
        ("here", ("--local",), words),
        ("in a process", apart, (*words, "environment.copies=8")),
    ):
        lags = {f"play {where}, then update": 0, f"play {where} beside": 1}
        yield from ratios(
            {
                name: trained(device, 40, *options, words=(*own, f"collect.lag={lag}"))
                for name, lag in lags.items()
            }
        )


def ratios(rows: Mapping[str, Row]) -> Iterator[Row]:
    """Compare whole runs with the first one."""
    first = next(iter(rows.values()))["ms"]
    for player, row in rows.items():
        yield {"times": round(row["ms"] / first, 4), "player": player, **row}


def qmix(device: str, episodes: int, steps: int) -> Iterator[Row]:
    load = qmix_update.WORKLOADS[0]
    team = {"agents": load.agents, "inputs": load.inputs, "state": load.state}
    sizes = {**team, "actions": load.actions, "episodes": episodes, "steps": steps, "hidden": 64}
    ours = partial(qmix_update.make_update, load, lengths=[steps] * episodes, device=device)

    def torchrl() -> Iterable[Any]:
        from torchrl_qmix import make_update

        with torch.device(device):
            return [("TorchRL", make_update(**sizes), 1)]

    def pymarl() -> Iterable[Any]:
        with torch.device(device):
            return [("PyMARL's way", pymarl_qmix.make_update(**sizes), 1)]

    def jax() -> Iterable[Any]:
        from jax_teams import qmix

        return qmix(**sizes)

    def own() -> Iterable[Any]:
        return [(f"Fullrank, units: {units}", ours(units=units), 1) for units in (1, 8)]

    players = {"Fullrank": own, "TorchRL": torchrl, "PyMARL": pymarl, "JAX": jax}
    several_ms = 0.0
    for row in compared(players, device):
        yield row
        if row["player"] == "Fullrank, units: 8":
            several_ms = row["ms"]
        elif several_ms and "ms" in row:
            times = round(row["ms"] / several_ms, 4)
            yield {"times": times, "player": f"{row['player']}, to 8 units", "ms": row["ms"]}


def ippo(device: str, iterations: int) -> Iterator[Row]:
    example = str(ROOT / "examples/three_agents.toml")
    yield from ratios(on_both(device, iterations, "--config", example))


def played(device: str, episodes: int, steps: int) -> Iterator[Row]:
    environment = EnvironmentSpec(agents=workload(3, 64, episodes).specs())
    for name in ("ippo", "mappo", "pqn"):
        learner: Any = algorithms.build(name, batch_size=episodes, hidden=64)
        here, there = (learner.make(environment, seed=0, device=each) for each in ("cpu", device))
        layout = here.problem.episodes
        rows = qmix_update.episodes(layout, [steps] * episodes)
        rows[:, layout.ends], rows[:, layout.earns] = 0.0, rows[:, layout.length, None] == 0.0
        here.prepare(rows)
        own, own_ms = in_company(here, there, rows, entries=learner.entries.size), 0.0
        for place, algorithm in ((device, there), ("cpu", here)):
            ms = 1e3 * seconds(_update(algorithm, rows), place)[0]
            own_ms = own_ms or ms
            yield {"times": round(ms / own_ms, 4), "player": f"{name} on {place}", "ms": ms, **own}
            own = {}
        if name == "ippo":
            yield from compared(_ppo_peers(device, episodes * steps), device, own_s=1e-3 * own_ms)


def _ppo_peers(device: str, rows: int) -> dict[str, Players]:
    sizes = {"agents": 3, "inputs": NAVIGATOR_OF_THREE + 3, "actions": ACTIONS}
    sizes |= {"rows": rows, "hidden": 64}

    def torchrl() -> Iterable[Any]:
        from torchrl_ppo import make_update

        with torch.device(device):
            return [("TorchRL", make_update(**sizes), 1)]

    def jax() -> Iterable[Any]:
        from jax_teams import ppo

        return ppo(**sizes)

    return {"TorchRL": torchrl, "JAX": jax}


def _update(algorithm: Algorithm, rows: FloatArray) -> Callable[[], object]:
    """Return units, sums, digests and the step, as in a run in one process."""
    central = Centralised(algorithm.problem, algorithm.gradients, seed=0)
    return lambda: algorithm.optimiser.step(central.compute(rows, iteration=0).updates)


def on_both(device: str, iterations: int, *options: str) -> dict[str, Row]:
    """Train in one process on the device and on the CPU."""
    places = (device, "cpu")
    return {f"on {place}": trained(place, iterations, "--local", *options) for place in places}


def whole(device: str, iterations: int) -> Iterator[Row]:
    rows = on_both(device, iterations)
    yield from ratios(rows)

    def jax() -> Iterable[Any]:
        return [("JAX", run_in_jax(iterations)[0], iterations)]

    yield from compared({"JAX": jax}, device, own_s=1e-3 * rows[f"on {device}"]["ms"])


def services(device: str, iterations: int) -> Iterator[Row]:
    words, late = ("--learners", "4", "--code", "cyclic"), ("--stragglers", "1", "--delay", "0.1")
    runs = {"none late": words, "one late": (*words, *late), "in one process": ("--local",)}
    there = [f"controller.device={device}"]
    rows = {name: trained(device, iterations, *own, words=there) for name, own in runs.items()}
    yield from alike(rows)
    first, here = (
        next(iter(rows.values())),
        trained("cpu", iterations, *words, words=["controller.device=cpu"]),
    )
    yield {"times": round(here["ms"] / first["ms"], 4), "player": "learners on the CPU", **here}


def alike(rows: Mapping[str, Row]) -> Iterator[Row]:
    """Compare whole runs that have to commit the same bits."""
    equal = len({row["digest"] for row in rows.values()}) == 1
    yield from ({**row, "holds": equal} for row in ratios(rows))


def ranks(device: str, iterations: int, agents: int, hidden: int, batch: int) -> Iterator[Row]:
    nccl = torch.distributed.is_available() and torch.distributed.is_nccl_available()
    if visible() < 2 or not nccl:
        absent = [f"{visible()} CUDA devices", *([] if nccl else ["torch without nccl"])]
        yield {"player": "two cards", "skipped": ", ".join(absent)}
        return
    sizes = (f"environment.agents={agents}", f"algorithm.hidden={hidden}")
    tower = ("environment.name=rover_tower", *sizes, f"algorithm.batch_size={batch}")
    for split, parts in (("agents", 1), ("transitions", 2)):
        own = (*tower, f"algorithm.micro_batches={parts}", f"ranks.split={split}")
        runs = {f"one card, G = {parts}": (device, 1), f"two cards by {split}": ("cuda", 2)}
        yield from alike(
            {
                name: trained(place, iterations, "--local", words=(*own, f"ranks.count={count}"))
                for name, (place, count) in runs.items()
            }
        )


def trained(device: str, iterations: int, *options: str, words: Sequence[str] = ()) -> Row:
    """Train by the command line; medians of the later half of the iterations.

    A run of which something was not captured has failed, too.

    Raises:
        RuntimeError: The run failed; the message is its last line.
    """
    settings = (f"compute.device={device}", "metrics.greedy_share=0", *words)
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "fullrank", "train", "--run-dir", f"{folder}/run"]
        command += ["--iterations", str(iterations), *options]
        command += [word for setting in settings for word in ("--set", setting)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError((done.stderr or done.stdout).strip().splitlines()[-1])
        lines = Path(folder, "run/metrics.jsonl").read_text().splitlines()
        refused = refused_in(Path(folder, "run"))
    records = [json.loads(line) for line in lines]
    late = records[len(records) // 2 :]

    def median(key: str) -> float:
        return float(statistics.median(record[key] for record in late))

    return {
        "ms": 1e3 * median("iteration_s"),
        "per_s": round(1 / median("iteration_s"), 1),
        "update_ms": 1e3 * median("update_s"),
        "play_ms": 1e3 * median("play_s"),
        "aps": round(median("agent_updates_per_s")),
        "digest": records[-1]["update_digest"],
        **failed(refused),
    }


def company(device: str, agents: int = 8, hidden: int = 64, batch: int = 128) -> Iterator[Row]:
    load = workload(agents, hidden, batch)
    config, environment = (
        MADDPG(batch_size=load.batch, hidden=load.hidden),
        EnvironmentSpec(agents=load.specs()),
    )
    here, there = (config.make(environment, seed=0, device=place) for place in ("cpu", device))
    rows = probe_batch(here.problem, environment.layout, seed=0)
    yield {"player": "units", **in_company(here, there, rows)}


def in_company(here: Algorithm, there: Algorithm, rows: FloatArray, *, entries: int = 0) -> Row:
    """Compare units alone, in threes and together, and all but the last entries with the CPU's."""
    count = len(there.problem.units)

    def computed(algorithm: Algorithm, units: Iterable[int]) -> Iterator[tuple[int, FloatArray]]:
        return algorithm.gradients.compute(rows, [*units], iteration=0)

    together = dict(computed(there, range(count)))
    chosen = sorted({0, count // 2, count - 1})
    companies = [*([unit] for unit in chosen), chosen[::-1], [*range(count)][::-1]]
    equal = all(
        np.array_equal(update, together[unit])
        for units in companies
        for unit, update in computed(there, units)
    )
    pairs = ((update, together[unit]) for unit, update in computed(here, chosen))
    gradients = ((own[: len(own) - entries], other[: len(own) - entries]) for own, other in pairs)
    error = max(float(np.abs(other - own).max() / np.abs(own).max()) for own, other in gradients)
    bits = "equal in company" if equal else "OTHERS"
    return {"bits": bits, "error": error, "holds": equal and error <= NEAR}


PARTS: dict[str, Callable[..., Iterator[Row]]] = {
    part.__name__: part
    for part in (
        *(updates, aps, overlap, qmix, played, ippo, whole, goals, goals_in_jax, services, ranks),
        *(company, worlds),
    )
}


def measured(part: str, device: str) -> Iterator[Row]:
    """Yield the rows of a part, one that names a failed capture, and the one that ends it."""
    kind, *sizes = part.split()
    began = time.perf_counter()
    with refused_here() as refused:
        for row in PARTS[kind](device, *map(int, sizes)):
            yield {"part": part, **row}
    if refused:
        yield {"part": part, "player": "Fullrank", **failed(refused)}
    gc.collect()  # the next part has the memory of this one
    torch.cuda.empty_cache()
    yield {"part": part, "took_s": round(time.perf_counter() - began, 1)}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Measurements on one device.")
    parser.add_argument("--device", default="cpu", help="cuda, cuda:K or cpu")
    parser.add_argument(
        "parts",
        nargs="*",
        default=["company"],
        help=f"each with its sizes, as 'company 8 64 128'; {', '.join(PARTS)}",
    )
    chosen = parser.parse_args(arguments)
    for part in chosen.parts:
        if part.split()[0] not in PARTS:
            parser.error(f"{part!r} is no part: use one of {', '.join(PARTS)}")
    device = placed(chosen.device, devices=visible(), accelerated=True, setting="--device")
    if device == "cpu":
        torch.set_num_threads(1)
    os.environ.setdefault("JAX_PLATFORMS", device.partition(":")[0])  # no other one in its place
    holds = True
    for row in (row for part in chosen.parts for row in measured(part, device)):
        print(json.dumps(row), flush=True)
        holds &= bool(row.get("holds", True))
    return int(not holds)


if __name__ == "__main__":
    raise SystemExit(main())
