"""Steps of a particle task as tensors on a device: parts ``worlds`` of ``one_device.py``."""

import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch

from fullrank.environments import make_environment
from fullrank.environments.particle.environment import DeviceParticles, ParticleEnvironment
from fullrank.networks.fused.cuda import Graphs

TASK, HORIZON, ROUNDS = "cooperative_navigation", 25, 5


def worlds(device: str, agents: int, *copies: int) -> Iterator[dict[str, Any]]:
    """Time steps of so many copies, on CUDA a graph of launches, beside steps as arrays.

    Both play by turns, an episode each, without resets; ``times`` is the time of arrays by that of
    tensors.
    """
    place = torch.device(device)
    for count in copies:
        here = make_environment(TASK, agents=agents, copies=count)
        assert isinstance(here, ParticleEnvironment)
        there = here.on(partial(torch.tensor, device=place))
        size = sum(agent.action.size for agent in here.agents)
        action = np.random.default_rng(0).random((count, size), np.float32)
        uploaded = torch.tensor(np.ascontiguousarray(action.T), device=place)
        launch = partial(_launch, Graphs(place), there, uploaded)
        times = []
        for number in range(1 + ROUNDS):
            seeds = range(number * count, (number + 1) * count)
            here.reset(seeds, range(count))
            there.start(seeds, range(count))
            times.append((_seconds(partial(here.step, action), place), _seconds(launch, place)))
        own, other = zip(*times[1:], strict=True)  # the first ones warm up
        rates = [round(HORIZON * count / statistics.median(each)) for each in (other, own)]
        ratio = statistics.median(a / t for a, t in zip(own, other, strict=True))
        yield {
            "player": f"{count} copies",
            "times": round(ratio, 4),
            "steps_per_s": rates[0],
            "as_arrays": rates[1],
        }


def _launch(graphs: Graphs, world: DeviceParticles, action: torch.Tensor) -> None:
    graphs.run(
        "step",
        lambda draw, check_cancelled: world.advance(action),
        draw=lambda: torch.zeros(1),
        check_cancelled=lambda: None,
    )


def _seconds(step: Callable[[], object], device: torch.device) -> float:
    """Wall time of an episode's steps, the device's work included."""
    start = time.perf_counter()
    for _ in range(HORIZON):
        step()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - start
