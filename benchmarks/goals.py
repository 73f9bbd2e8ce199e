"""Seconds from the start of a process to a return: parts ``goals`` of ``one_device.py``.

Fullrank's are those of ``fullrank train --local`` with its defaults, until a checkpoint was written
whose policies reach the return in 200 greedy episodes (``learns.py``). JAX's are those of a process
that compiles the same run and evaluates it every 100 iterations.
"""

import importlib.util
import json
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil

import learns
from captures import failed
from fullrank.algorithms.maddpg import MADDPG
from fullrank.config import load

PROGRAM = Path(__file__).with_name("one_device.py")
NAVIGATOR_OF_THREE = 14
"""Entries that a navigator of three observes, those that are always zero left out."""
EVERY = 100
"""Iterations between two evaluations of a run in JAX."""


def run_in_jax(iterations: int) -> Any:
    """Compile the default run: a call that trains on, and one that gives the greedy return."""
    from jax_teams import Team, whole

    config, own = load().check().config, MADDPG()
    return whole(
        Team(3, NAVIGATOR_OF_THREE, own.hidden, own.batch_size),
        copies=config.environment.copies,
        warmup=config.collect.warmup,
        capacity=config.replay.capacity,
        iterations=iterations,
    )


def goals(device: str, iterations: int, *returns: int) -> Iterator[dict[str, Any]]:
    """Time the default run and the same in JAX to each return, the lowest first."""
    settings = (f"iterations={iterations}", f"compute.device={device}")
    run = learns.trained(1, ["--local", *(word for each in settings for word in ("--set", each))])
    points = {goal: run.reached(goal) for goal in returns}
    own = {f"to {goal}": point.seconds for goal, point in points.items() if point}
    yield from _reached("Fullrank", own, own, returns)
    if run.refused:
        yield {"player": "Fullrank", **failed(run.refused)}
    if importlib.util.find_spec("jax") is None:
        yield {"player": "JAX", "skipped": "jax is not installed"}
        return
    part = " ".join(map(str, ("goals_in_jax", iterations, *returns)))
    command = [sys.executable, str(PROGRAM), "--device", device, part]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        yield {"player": "JAX", "failed": done.stderr.strip().splitlines()[-1][:200]}
    else:
        yield from _reached("JAX", json.loads(done.stdout.splitlines()[0]), own, returns)


def _reached(
    player: str, found: Mapping[str, float], own: Mapping[str, float], returns: Iterable[int]
) -> Iterator[dict[str, Any]]:
    for goal in (f"to {goal}" for goal in returns):
        row = {"player": f"{player} {goal}", "seconds": found.get(goal, "never")}
        if goal in found and goal in own:
            row = {"times": round(found[goal] / own[goal], 4), **row}
        yield row


def goals_in_jax(_: str, iterations: int, *returns: int) -> Iterator[dict[str, Any]]:
    """Yield the seconds from the start of this process to each return, by goal."""
    train, evaluate = run_in_jax(EVERY)
    began, found, waiting = psutil.Process().create_time(), dict[str, float](), [*returns]
    for _done in range(-(-iterations // EVERY)):
        train()
        mean = evaluate()
        while waiting and mean >= waiting[0]:
            found[f"to {waiting.pop(0)}"] = round(time.time() - began, 2)
        if not waiting:
            break
    yield found
