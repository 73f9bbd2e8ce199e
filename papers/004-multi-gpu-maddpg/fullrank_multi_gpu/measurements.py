"""Measured cells: phases of an iteration, updates divided among ranks, and learning by seeds.

Times are processor seconds, the least of several repeats: other work on the machine lengthens wall
time far more. A group's time is that of its busiest rank, which is what it needs on idle cores
where nothing waits.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import product
from time import process_time

import numpy as np
import psutil
import torch

from fullrank.algorithms import algorithms
from fullrank.common.types import JSON
from fullrank.config.plugins import spec_of
from fullrank.config.tree import RunConfig
from fullrank.local import LocalRun
from fullrank.training.centralised import Centralised
from fullrank.training.evaluation import Greedy, evaluate
from fullrank.training.ranks import Split, received_bytes
from fullrank.training.worker import probe_batch
from fullrank.wiring.plugins import environment_of
from fullrank.wiring.training import training_of
from fullrank_controller.local.ranks import ranks_of
from fullrank_papers.cells import Cell, settings_of
from fullrank_papers.paper import toml
from fullrank_papers.runs import configured

SPLITS: tuple[Split, ...] = ("transitions", "agents")
"""The paper's division of an update, and ours."""
PAPERS_COLLECTION = ("environment.copies=4", "collect.steps=25")
"""100 transitions an update in 25 steps, the original algorithm's episodes."""
WIDE_COLLECTION = ("environment.copies=100", "collect.steps=1")
"""The same number in one step, as this engine collects by default."""
EPISODES, EVALUATION_SEED = 500, 2000
"""Episodes that the trained policies play, the same for every run."""

LEAST_S = 1.0
"""Processor seconds of updates by one process beside ranks: the system counts those of ranks in
hundredths."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MultiGpuScale:
    """Sizes of what is measured."""

    hidden: int
    """Width of every network; the paper's is 1,024."""
    agents: tuple[int, ...]
    """Teams whose phases are measured, with minibatches of ``batch``."""
    batch: int
    ranked_agents: tuple[int, ...]
    """Teams whose updates two ranks divide, with the largest of ``batches``."""
    batches: tuple[int, ...]
    """Sizes of minibatches that two ranks divide, for the second of these teams, ascending."""
    repeats: int
    seeds: tuple[int, ...]
    more_seeds: tuple[int, ...] = ()
    """Seeds of lag 1 in navigation, which scatters more than its bound, where not ``seeds``."""
    iterations: int
    learning_batch: int

    @property
    def largest(self) -> int:
        """The largest minibatch that ranks divide."""
        return self.batches[-1]


PACKAGE = "fullrank_multi_gpu"
SCALES = {name: MultiGpuScale(**sizes) for name, sizes in toml(PACKAGE, "scales.toml").items()}


def tower(scale: MultiGpuScale, agents: int, batch: int, *overrides: str) -> RunConfig:
    """The configuration of a Rover Tower, the paper's workload."""
    settings = (
        *("environment.name=rover_tower", f"environment.agents={agents}", "compute.device=cpu"),
        *(f"algorithm.hidden={scale.hidden}", f"algorithm.batch_size={batch}"),
        *("collect.warmup=2048", "metrics.sinks=[]"),
    )
    return configured(*settings, *overrides)


def phases(scale: MultiGpuScale, agents: int) -> Cell:
    """Processor seconds of the phases of an iteration: playing, both ways, and the update."""
    config = tower(scale, agents, scale.batch, *PAPERS_COLLECTION)

    def compute() -> JSON:
        wide = tower(scale, agents, scale.batch, *WIDE_COLLECTION)
        return {
            "play_s": _playing(config, scale.repeats),
            "wide_play_s": _playing(wide, scale.repeats),
            "update_s": _update(config, scale.repeats),
        }

    settings = {"run": settings_of(config), "repeats": scale.repeats}
    return Cell(name=f"phases-{agents}", settings=settings, compute=compute, weight=agents)


def _playing(config: RunConfig, repeats: int) -> float:
    torch.set_num_threads(1)
    training, times = training_of(config), []
    with closing(training.collector):
        for iteration in range(1 + repeats):
            training.collector.publish(iteration)
            began = process_time()
            training.collector.collect(iteration)
            times.append(process_time() - began)
    return min(times[1:])


def _update(config: RunConfig, repeats: int) -> float:
    torch.set_num_threads(1)
    training, times = training_of(config), []
    compute = Centralised(training.problem, training.algorithm.gradients, seed=config.seed).compute
    with closing(training.collector):
        batch = probe_batch(training.problem, spec_of(config).layout, seed=config.seed)
        for iteration in range(1 + repeats):
            began = process_time()
            training.trainer.apply(compute(batch, iteration=iteration).updates, iteration=iteration)
            times.append(process_time() - began)
    return min(times[1:])


def curve(scale: MultiGpuScale, agents: int, batch: int) -> Cell:
    """Processor seconds of an update by one process, the curve T_MU(B) of one device."""
    config = tower(scale, agents, batch)

    def compute() -> JSON:
        return {"update_s": _update(config, scale.repeats)}

    settings = {"run": settings_of(config), "repeats": scale.repeats}
    return Cell(name=f"curve-{agents}-{batch}", settings=settings, compute=compute)


def ranked(scale: MultiGpuScale, ranks: int, agents: int, batch: int) -> Cell:
    """One process against some ranks, on the same minibatches, by both splits.

    Seconds are the processor's, mean of the repeats after two updates that warm up; of several
    ranks those of the busiest. The one process computes whole minibatches, as do ranks that divide
    agents; ranks that divide transitions compute a micro-batch each. ``bytes`` are received by a
    rank in an update, ``formula`` is what they should be, and ``equal`` says whether the digests
    are those of one process with as many micro-batches.
    """
    sized = partial(tower, scale, agents, batch)

    def compute() -> JSON:
        enough = math.ceil(LEAST_S / _update(sized(), scale.repeats))
        repeats = max(scale.repeats, enough)
        one_s, _, _ = _busiest(sized(), repeats)
        return {
            "one_s": one_s,
            **{str(split): _divided(sized, ranks, split, repeats) for split in SPLITS},
        }

    settings = {
        "run": settings_of(sized()),
        "ranks": ranks,
        "repeats": scale.repeats,
        "least_s": LEAST_S,
    }
    name = ranks_name(ranks, agents, batch)
    return Cell(name=name, settings=settings, compute=compute, weight=6)


def _divided(sized: Callable[..., RunConfig], ranks: int, split: Split, repeats: int) -> JSON:
    """Measure a group of ranks, and compare its digests with those of one process."""
    parts = f"algorithm.micro_batches={ranks if split == 'transitions' else 1}"
    config = sized(parts, f"ranks.count={ranks}", f"ranks.split={split}")
    busiest_s, moved, digests = _busiest(config, repeats)
    _, _, expected = _busiest(sized(parts), repeats)
    problem = algorithms.build("maddpg", **config.algorithm.params).problem(spec_of(config))
    return {
        "busiest_s": busiest_s,
        "bytes": moved,
        "formula": received_bytes(problem, ranks, split),
        "equal": digests == expected,
    }


def _busiest(config: RunConfig, repeats: int) -> tuple[float, float, list[str]]:
    """Processor seconds and received bytes of an update, and the digests of all updates."""
    torch.set_num_threads(1)
    training, warm, digests = training_of(config), 2, list[str]()
    own = psutil.Process()
    before: dict[int, float] = {}
    with closing(training.collector), ranks_of(config, training) as group:
        alone = Centralised(training.problem, training.algorithm.gradients, seed=config.seed)
        batch = probe_batch(training.problem, spec_of(config).layout, seed=config.seed)
        processes = [own, *map(psutil.Process, () if group is None else group.pids)]
        for iteration in range(warm + repeats):
            if iteration == warm:
                before = {process.pid: _spent(process) for process in processes}
            targets = (group or alone).compute(batch, iteration=iteration)
            training.trainer.apply(targets.updates, iteration=iteration)
            digests += [digest.hex() for digest in targets.digests]
        spent = max(_spent(process) - before[process.pid] for process in processes)
        moved = 0.0
        if group is not None:  # what one sends, the others receive
            count, wire = config.ranks.count, group.wire
            moved = wire.received_bytes
            if count == 2:
                moved = (wire.received_bytes + wire.sent_bytes) / 2
    return spent / repeats, moved / (warm + repeats), digests


def _spent(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


ONE_BATCH = "one batch"
VARIANTS = {
    ONE_BATCH: (),
    "lag 1": ("collect.lag=1",),
    "2 micro-batches": ("algorithm.micro_batches=2",),
    "4 micro-batches": ("algorithm.micro_batches=4",),
}
"""Variants, compared by seed with updates that wait for collection and use one batch."""
UNTRAINED = "untrained"
TASKS = {
    "communication": ("environment.name=speaker_listener", "environment.agents=2"),
    "navigation": ("environment.name=cooperative_navigation", "environment.agents=3"),
}
"""Cooperative communication, the paper's Figs. 4 and 5, and cooperative navigation: the paper says
that other tasks show the same."""


def compared_seeds(scale: MultiGpuScale, task: str, variant: str) -> tuple[int, ...]:
    """Seeds with which a variant is compared on a task."""
    longest = (task, variant) == ("navigation", "lag 1")
    return (longest and scale.more_seeds) or scale.seeds


def learning_name(task: str, variant: str, seed: int) -> str:
    """The name of the cell of a run."""
    return f"learning-{task}-{variant.replace(' ', '-')}-{seed}"


def learning(scale: MultiGpuScale, task: str, variant: str, seed: int) -> Cell:
    """Return of the greedy policies at the end of a run, mean over the same episodes.

    Those of ``UNTRAINED`` are played as they begin.
    """
    config = configured(
        *(f"seed={seed}", f"iterations={scale.iterations}", "compute.device=cpu"),
        *TASKS[task],
        *("environment.copies=100", f"algorithm.batch_size={scale.learning_batch}"),
        *VARIANTS.get(variant, ()),
    )
    return Cell(
        name=learning_name(task, variant, seed),
        settings={"run": settings_of(config), "episodes": EPISODES},
        compute=partial(_learnt, config, train=variant in VARIANTS),
        weight=scale.iterations / 100 if variant in VARIANTS else 1.0,
        beside=True,
    )


def _learnt(config: RunConfig, *, train: bool) -> JSON:
    run = LocalRun(config, coded=False)
    with closing(run.training.collector):
        returns = [record.return_mean for record in run.train()] if train else []
    environment = environment_of(config, copies=100)
    with closing(environment):
        act = Greedy(run.training.algorithm.actor)
        played = evaluate(environment, act, EPISODES, EVALUATION_SEED).returns
    known = [value for value in returns if value is not None]
    last = {"training": float(np.mean(known[-len(known) // 4 :]))} if known else {}
    return {"greedy": float(np.mean(played)), **last}


def ranked_sizes(scale: MultiGpuScale) -> list[tuple[int, int, int]]:
    """Ranks, agents and minibatch of what several ranks divide."""
    sizes = [(2, scale.ranked_agents[1], batch) for batch in scale.batches]
    sizes += [(2, agents, scale.largest) for agents in scale.ranked_agents]
    sizes.append((4, scale.ranked_agents[0], scale.largest))
    return list(dict.fromkeys(sizes))


def ranks_name(ranks: int, agents: int, batch: int) -> str:
    """The name of the cell of some ranks."""
    return f"ranks-{ranks}-{agents}-{batch}"


def cells(scale: MultiGpuScale) -> list[Cell]:
    """All measured cells."""
    halves = sorted({size for batch in scale.batches for size in (batch // 2, batch)})
    return [
        *(phases(scale, agents) for agents in scale.agents),
        *(curve(scale, scale.ranked_agents[1], batch) for batch in halves),
        *(ranked(scale, *sizes) for sizes in ranked_sizes(scale)),
        *(learning(scale, *run) for run in dict.fromkeys(_compared(scale))),
    ]


def _compared(scale: MultiGpuScale) -> Iterator[tuple[str, str, int]]:
    """Each variant, and what it is compared with, by task and seed."""
    for task, variant in product(TASKS, VARIANTS):
        for seed in compared_seeds(scale, task, variant):
            yield from ((task, each, seed) for each in (variant, ONE_BATCH, UNTRAINED))
