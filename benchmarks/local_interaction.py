"""Claim: samples of one agent come 50 times as fast as from a plain program, at any size of team.

First, Food Collection with M = 24 agents and the authors' training settings: samples per CPU second
of ``ArenaNeighbourhood``, 1,024 at a time (one of their minibatches), against
``per_agent_food.py``, which steps agents one by one. Both must give the same transitions. Then the
cost of a sample against M at one density (24 agents and pieces of food in a square of side 5), for
neighbour interaction and for the whole team, 64 at a time: cost at M over cost at M = 96, both in
this run. In smaller squares an agent is often near a wall and has fewer neighbours. Actions are
drawn beforehand, without policies. All programs alternate in this process; medians of CPU seconds.
Exits with 1 if the ratio is below 50, or if a sample at M = 512 costs more than 1.25 times one at M
= 96.

    OMP_NUM_THREADS=1 python benchmarks/local_interaction.py
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from fullrank.common.seeding import stream
from fullrank.environments.arena.environment import Arena
from fullrank.environments.arena.food_collection import FoodCollection
from fullrank.environments.arena.neighbourhood import ArenaNeighbourhood
from per_agent_food import Agent, Team

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "local_interaction.png"
TEAMS = (24, 48, 96, 192, 384, 512)
ROOMY = 96
"""Smallest team for which walls matter little."""
AUTHORS = FoodCollection(contacts=True, moving_start=True, margin=0.2, local_rewards=True)
"""The authors' settings for training with M = 24."""
SAMPLES, COPIES = 1024, 64

LABELS = {"local": "neighbourhood of one agent", "whole": "the whole team"}

Collect = Callable[[int], int]
"""Makes samples, seeded by the number of the round; returns their number."""


def dense(agents: int) -> FoodCollection:
    """Configure a team as dense as the authors' of 24, with limited sight."""
    return FoodCollection(
        half_width=2.5 * float(np.sqrt(agents / 24)),
        distance=0.3,
        food_distance=0.6,
        food_seen=6,
        neighbours_seen=6,
        moving_start=True,
        local_rewards=True,
    )


def actions(*shape: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Draw random one-hot vectors."""
    return np.eye(5, dtype=np.float32)[np.random.default_rng(0).integers(5, size=shape)]


def local(config: FoodCollection, agents: int, *, samples: int, calls: int) -> Collect:
    """Make samples of one agent, many at a time."""
    world = ArenaNeighbourhood(config, agents=agents)
    chosen = actions(samples, agents)

    def collect(number: int) -> int:
        for call in range(calls):
            generator = stream(number, "collect", call)
            here = world.start(np.full(samples, call % agents), generator=generator)
            world.step(chosen[:, : here.agent.shape[1]])
        return calls * samples

    return collect


def whole(config: FoodCollection, agents: int, *, calls: int) -> Collect:
    """Reset and step the whole team for a sample of one agent."""
    arena = Arena(config, agents=agents, copies=COPIES)
    chosen = actions(COPIES, agents).reshape(COPIES, -1)

    def collect(number: int) -> int:
        for call in range(calls):
            first = (number * calls + call) * COPIES
            arena.reset(range(first, first + COPIES), range(COPIES))
            arena.step(chosen)
        return calls * COPIES

    return collect


def team_of_24() -> Team:
    return Team(24, distance=0.3, half_width=2.5, margin=0.2)


def one_by_one(samples: int) -> Collect:
    """Run the plain program."""
    team = team_of_24()
    chosen = actions(24)

    def collect(number: int) -> int:
        for sample in range(samples):
            central = sample % 24
            team.reset(stream(number, "plain", sample))
            acting = team.acting(central)
            for agent in acting:
                team.observe(agent)
            team.step(central, {agent: chosen[agent] for agent in acting})
        return samples

    return collect


def check(samples: int) -> None:
    """Check that both programs make the same transitions from the same states."""
    arena, world = Arena(AUTHORS, agents=24, copies=samples), ArenaNeighbourhood(AUTHORS, agents=24)
    arena.reset(range(samples), range(samples))
    crowd, chosen = arena.crowd, actions(samples, 24)
    central = np.arange(samples) % 24
    here = world.around(arena, central, np.arange(samples), generator=np.random.default_rng(0))
    after = world.step(np.take_along_axis(chosen, here.agent[..., None].clip(0), axis=1))
    for copy, agent in enumerate(central.tolist()):
        team = team_of_24()
        state = zip(crowd.position[:, copy].T, crowd.velocity[:, copy].T, strict=True)
        team.agents = [Agent(position, velocity) for position, velocity in state]
        team.food = list(crowd.food[:, copy].T)
        acting = team.acting(agent)
        assert here.agent[copy][here.acting[copy]].tolist() == acting
        seen = np.stack([team.observe(i) for i in acting])
        np.testing.assert_array_equal(here.observation[copy][here.acting[copy]], np.float32(seen))
        reward, later = team.step(agent, {i: chosen[copy, i] for i in acting})
        np.testing.assert_allclose(after.reward[copy], reward, rtol=0, atol=1e-12)
        shown = after.observation[copy][after.neighbour[copy]]
        np.testing.assert_allclose(shown, np.stack(list(later.values())), rtol=1e-6, atol=1e-7)


def seconds_a_sample(collect: Collect, number: int) -> float:
    """Measure the CPU seconds of one sample."""
    start = time.process_time()
    samples = collect(number)
    return (time.process_time() - start) / samples


def alternate(programs: Mapping[str, Collect], rounds: int) -> dict[str, list[float]]:
    """Measure the CPU seconds of a sample of each program in each round."""
    for collect in programs.values():
        collect(rounds)  # warm up
    times: dict[str, list[float]] = {name: [] for name in programs}
    for number in range(rounds):
        for name, collect in programs.items():
            times[name].append(seconds_a_sample(collect, number))
    return times


def compare(rounds: int) -> bool:
    """Compare with the plain program; return whether the claim holds."""
    check(48)
    batched = local(AUTHORS, 24, samples=SAMPLES, calls=4)
    times = alternate({"batched": batched, "plain": one_by_one(40)}, rounds)
    ratios = sorted(b / a for a, b in zip(times["batched"], times["plain"], strict=True))
    ratio = statistics.median(ratios)
    print("| M = 24 | samples per CPU second | ratio | spread | claim |")
    print("| --- | --- | --- | --- | --- |")
    print(f"| agent by agent | {1 / statistics.median(times['plain']):,.0f} | 1 | | |")
    print(
        f"| `ArenaNeighbourhood` | {1 / statistics.median(times['batched']):,.0f} | {ratio:.0f} "
        f"| {ratios[0]:.0f} to {ratios[-1]:.0f} | 50 |"
    )
    return ratio >= 50


def grow(rounds: int) -> bool:
    """Compare costs against M; return whether the claim holds."""
    programs = {f"local {m}": local(dense(m), m, samples=SAMPLES, calls=2) for m in TEAMS}
    programs |= {f"whole {m}": whole(dense(m), m, calls=1) for m in TEAMS}
    times = alternate(programs, rounds)
    cost = {name: statistics.median(values) for name, values in times.items()}
    over = f"cost over M = {ROOMY}"
    print(f"\n| M | local, samples/s | {over} | spread | whole team, samples/s | {over} |")
    print("| --- | --- | --- | --- | --- | --- |")
    for m in TEAMS:
        one, team = cost[f"local {m}"], cost[f"whole {m}"]
        ratios = [a / b for a, b in zip(times[f"local {m}"], times[f"local {ROOMY}"], strict=True)]
        print(
            f"| {m} | {1 / one:,.0f} | {one / cost[f'local {ROOMY}']:.2f} "
            f"| {min(ratios):.2f} to {max(ratios):.2f} "
            f"| {1 / team:,.0f} | {team / cost[f'whole {ROOMY}']:.2f} |"
        )
    draw(cost)
    return cost[f"local {TEAMS[-1]}"] <= 1.25 * cost[f"local {ROOMY}"]


def draw(cost: Mapping[str, float]) -> None:
    """Draw both curves."""
    figure = Figure(figsize=(5.2, 3.4), dpi=120, layout="constrained")
    axes = figure.add_subplot()
    for kind, colour in (("local", "#0072b2"), ("whole", "#d55e00")):
        values = [1e6 * cost[f"{kind} {m}"] for m in TEAMS]
        axes.loglog(TEAMS, values, "o-", color=colour, label=LABELS[kind])
    axes.set(xlabel="agents M, at one density", ylabel="CPU µs a sample", xticks=TEAMS)
    axes.set_xticklabels([str(m) for m in TEAMS])
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(PICTURE)


def main() -> int:
    parser = argparse.ArgumentParser(description="Neighbour interaction against the whole team.")
    parser.add_argument("--rounds", type=int, default=9, help="alternations, the median counts")
    rounds = parser.parse_args().rounds
    held = [compare(rounds), grow(rounds)]
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
