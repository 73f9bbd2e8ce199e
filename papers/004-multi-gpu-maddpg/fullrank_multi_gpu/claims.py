"""The claims C1 to C8 of multi-GPU MADDPG, judged on what was measured, and ours beside them."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from fullrank.common.types import Array
from fullrank_multi_gpu.measurements import (
    ONE_BATCH,
    SPLITS,
    TASKS,
    UNTRAINED,
    MultiGpuScale,
    compared_seeds,
    learning_name,
    ranked_sizes,
    ranks_name,
)
from fullrank_papers.cells import Results
from fullrank_papers.claims import (
    EXACT,
    ClaimResult,
    Held,
    Judgement,
    Strength,
    Whose,
    by_samples,
    judge,
    untested,
)

TIMED = Strength("measured in processor seconds of one CPU, not of GPUs")
COMPUTED = Strength("computed from measured phases of one CPU; no overlap was timed")
NOISE = 0.2
"""Difference of two ratios of ranks that counts as none: measured twice on a busy machine, six of
them differed by up to 0.14."""
BOUNDS = {"lag 1": 0.02, "2 micro-batches": 0.05, "4 micro-batches": 0.05}
"""Largest difference of returns, as a share of the gain, that counts as none: the paper's own
figures."""
NO_GPU = "no host with two CUDA devices was at hand"


def judged(results: Results, scale: MultiGpuScale) -> Judgement:
    """Results by source."""
    return {
        "Fig. 2": [_c1(results, scale)],
        "Fig. 4": _learning(results, scale, ["lag 1"], "C2: overlap changes"),
        "Sec. IV-A": [_c3(results, scale)],
        "Fig. 5": _learning(
            results, scale, ["2 micro-batches", "4 micro-batches"], "C4: micro-batches change"
        ),
        "Sec. III-A": [_c5(results, scale)],
        "Fig. 6": [
            untested("C6: N = 32: one GPU is faster at B <= 1024, two above.", NO_GPU),
            _c6(results, scale),
            untested(
                "C7: B = 4096: up to 1.5 times, 'maximum achieved APS at 64 agents'.",
                f"{NO_GPU}, and the sentence may mean the rate or the gain",
            ),
            _c7(results, scale),
        ],
        "Sec. V-B": [_c8(results, scale)],
        "ADR 57": [_ours_faster(results, scale)],
    }


def shares(results: Results, scale: MultiGpuScale, *, play: str = "play_s") -> list[float]:
    """The update's share of an iteration whose phases follow one another, by team."""
    return [
        phases["update_s"] / (phases["update_s"] + phases[play])
        for phases in (results[f"phases-{agents}"] for agents in scale.agents)
    ]


def overlap_bounds(results: Results, scale: MultiGpuScale, *, play: str = "play_s") -> list[float]:
    """The largest gain of overlap, (T_DC + T_MU) / max(T_DC, T_MU), by team."""
    bounds = []
    for agents in scale.agents:
        phases = results[f"phases-{agents}"]
        times = phases[play], phases["update_s"]
        bounds.append(sum(times) / max(times))
    return bounds


def _listed(names: Sequence[int], values: Sequence[float]) -> str:
    return ", ".join(f"{value:.2f} at {name}" for name, value in zip(names, values, strict=True))


def _c1(results: Results, scale: MultiGpuScale) -> ClaimResult:
    found = shares(results, scale)
    against = [
        f"{later:.2f} after {earlier:.2f}" for earlier, later in pairwise(found) if later < earlier
    ]
    against += [
        f"{share:.2f} with {agents} agents"
        for agents, share in zip(scale.agents, found, strict=True)
        if share <= 0.5
    ]
    return judge(
        "C1: the update dominates an iteration, and more so with more agents.",
        against,
        grounds=f"share of the update: {_listed(scale.agents, found)} agents",
        strength=TIMED,
    )


def _c3(results: Results, scale: MultiGpuScale) -> ClaimResult:
    bounds = overlap_bounds(results, scale)
    said = f"(T_DC + T_MU) / max: {_listed(scale.agents, bounds)} agents"
    falls = all(later <= earlier for earlier, later in pairwise(bounds))
    return judge(
        "C3: overlap gains most with few agents, bounded by the slower phase.",
        [] if falls else [f"{said}; largest where both phases take equally long"],
        grounds=said,
        strength=COMPUTED,
    )


def _beyond_noise(claim: str, leads: Sequence[float], said: str) -> ClaimResult:
    """Held if all leads are above ``NOISE``, not held if one is below its negative."""
    held = min(leads) > NOISE
    against = [said] if min(leads) < -NOISE else []
    strength = Strength(TIMED.said, Held.HELD if held else Held.UNDECIDED)
    return judge(claim, against, grounds=said, strength=strength)


def _c8(results: Results, scale: MultiGpuScale) -> ClaimResult:
    gains = by_team(results, scale)
    bounds = overlap_bounds(results, scale)
    return _beyond_noise(
        "C8: with more agents the second device matters more, overlap less.",
        [gains[-1] - gains[0], bounds[0] - bounds[-1]],
        f"second rank: {_listed(scale.ranked_agents, gains)} agents, +- {NOISE}; overlap: "
        f"{_listed(scale.agents, bounds)}",
    )


def ratio(results: Results, sizes: tuple[int, int, int], split: str = "transitions") -> float:
    """Agent-updates per second of several ranks, relative to one process."""
    found = results[ranks_name(*sizes)]
    return float(found["one_s"] / found[split]["busiest_s"])


def by_team(results: Results, scale: MultiGpuScale, split: str = "transitions") -> list[float]:
    """Ratios of two ranks at the largest minibatch, by team."""
    return [ratio(results, (2, n, scale.largest), split) for n in scale.ranked_agents]


def by_batch(results: Results, scale: MultiGpuScale, split: str = "transitions") -> list[float]:
    """Ratios of two ranks of the second team, by minibatch."""
    return [ratio(results, (2, scale.ranked_agents[1], size), split) for size in scale.batches]


def _learning(
    results: Results, scale: MultiGpuScale, variants: Sequence[str], claim: str
) -> list[ClaimResult]:
    return [
        by_samples(
            f"{claim} the reward by 0 to {100 * BOUNDS[variant]:.0f} %: {variant}, {task}.",
            {"": differences(results, scale, task, variant)},
            low=-100 * BOUNDS[variant],
            high=100 * BOUNDS[variant],
            said="% of the gain",
        )
        for task in TASKS
        for variant in variants
    ]


def returns(results: Results, task: str, variant: str, seeds: Sequence[int]) -> Array:
    """Greedy returns at the end, by seed."""
    names = (learning_name(task, variant, seed) for seed in seeds)
    return np.array([results[name]["greedy"] for name in names])


def differences(results: Results, scale: MultiGpuScale, task: str, variant: str) -> Array:
    """Differences of greedy returns in % of the mean gain over untrained teams, by seed."""
    seeds = compared_seeds(scale, task, variant)
    changed, plain, untrained = (
        returns(results, task, name, seeds) for name in (variant, ONE_BATCH, UNTRAINED)
    )
    found: Array = 100 * (changed - plain) / (plain - untrained).mean()
    return found


def _c5(results: Results, scale: MultiGpuScale) -> ClaimResult:
    names = [ranks_name(*sizes) for sizes in ranked_sizes(scale)]
    against = [
        f"{name}, {split}: other digests"
        for name in names
        for split in SPLITS
        if not results[name][split]["equal"]
    ]
    return judge(
        "C5: after the reduction all ranks hold the same weights, those of the full batch.",
        against,
        grounds=f"digests of ranks and of one process are equal in {len(names)} settings, by both "
        "splits; tests compare the sum of micro-batches with the gradient in float64",
        strength=EXACT,
    )


def _c6(results: Results, scale: MultiGpuScale) -> ClaimResult:
    gains = by_batch(results, scale)
    return _beyond_noise(
        "C6 in kind: two devices gain with large batches, and less, or nothing, with small ones.",
        [gains[-1] - 1, gains[-1] - gains[0]],
        f"two ranks to one, {scale.ranked_agents[1]} agents: "
        f"B = {_listed(scale.batches, gains)}; {_crossing(scale.batches, gains)}",
    )


def _crossing(batches: Sequence[int], gains: Sequence[float]) -> str:
    """Say from which size of the minibatch two ranks are the faster."""
    for row, batch in enumerate(batches):
        if all(gain > 1 for gain in gains[row:]):
            return f"two ranks are faster {f'from B = {batch} on' if row else 'at every size'}"
    return "two ranks are not faster at the largest"


def _c7(results: Results, scale: MultiGpuScale) -> ClaimResult:
    gains = by_team(results, scale)
    return _beyond_noise(
        "C7 in kind: two devices are faster at a large batch for every team.",
        [gain - 1 for gain in gains],
        f"ratio at B = {scale.largest}: {_listed(scale.ranked_agents, gains)} agents",
    )


def _ours_faster(results: Results, scale: MultiGpuScale) -> ClaimResult:
    pairs = {
        f"{sizes[0]} ranks, {sizes[1]} agents, B = {sizes[2]}": [
            ratio(results, sizes, split) for split in ("agents", "transitions")
        ]
        for sizes in ranked_sizes(scale)
    }
    slower = [
        f"{sizes}: {ours:.2f} against {theirs:.2f}"
        for sizes, (ours, theirs) in pairs.items()
        if ours < theirs - NOISE
    ]
    faster = sum(ours > theirs for ours, theirs in pairs.values())
    return judge(
        "Division by agents is at least as fast as by transitions.",
        slower,
        grounds=f"faster in {faster} of {len(pairs)} settings, in none slower by more than {NOISE}",
        strength=TIMED,
        whose=Whose.OURS,
    )
