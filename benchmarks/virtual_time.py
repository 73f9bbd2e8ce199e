"""Claim: what collectors play in virtual time is within 20 % of what they play on real services.

One collector of one copy, 4 of 3 and 3 of 13 play `3m` freely; a step takes 50 ms, emulated by
sleep, so that two cores stand for 39 game processes. Virtual time is told the step's duration, and
that of the choice of actions as it is measured beside it, in this process. Episodes a second as
ratios, virtual to services; exits with 1 if one is not between 0.8 and 1.2.

    OMP_NUM_THREADS=1 python benchmarks/virtual_time.py
"""

import argparse
import sys
import time
from collections.abc import Sequence

import torch

from fullrank.config.tree import RunConfig
from fullrank.planning.virtual_learning import learn_in_virtual_time
from fullrank.planning.virtual_time import VirtualDurations
from fullrank.training.blocks import BlockKey
from fullrank.wiring import block_player_of, training_of
from fullrank_reproduction.cli import observe
from fullrank_reproduction.cmarl.collection import Fleet, episodes_per_s

STEP_S, WIRE_S = 0.05, 0.002
FLEETS = ((1, 1), (4, 3), (3, 13))
LEAST, MOST = 0.8, 1.2
BLOCKS = 6
LONGEST_S = 1e6
"""Virtual time that no run reaches."""


def acting_s(config: RunConfig) -> float:
    """Seconds of a step of a block without the game's own time, least of some blocks."""
    training = training_of(config)
    collector = training.collector
    assert collector.free is not None
    player = block_player_of(
        config, collector.agents, state_size=collector.state_size, masked=collector.masked
    )
    terms, spent = collector.free.publish(0), list[float]()
    for block in range(BLOCKS):
        began = time.process_time()
        lengths = player.play(BlockKey(1, block), terms).lengths
        spent.append((time.process_time() - began) / int(lengths.max()))
    player.close()
    collector.close()
    return min(spent)


def virtual_rate(fleet: Fleet, *, iterations: int) -> float:
    """Episodes a second in virtual time, over the iterations that are counted on services.

    Others would count other episodes, which become shorter as exploration falls.
    """
    durations = VirtualDurations(
        step_s=STEP_S,
        acting_s=acting_s(fleet.config(step_s=0.0, iterations=iterations)),
        update_s=0.02,
        wire_s=WIRE_S,
    )

    def reached(counted: int) -> tuple[float, float]:
        """Episodes and seconds after the settling iterations and so many more."""
        config = fleet.config(step_s=0.0, iterations=counted)
        facts = learn_in_virtual_time(
            config, durations, until_s=LONGEST_S, every_s=LONGEST_S, episodes=1
        ).facts
        return facts["episodes"], facts["seconds"]

    (before, began_s), (after, ended_s) = reached(0), reached(iterations)
    return (after - before) / (ended_s - began_s)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--episodes", type=int, default=24, help="episodes of each actor")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    print("| collectors x copies | services, episodes/s | virtual | ratio |")
    print("|---|---|---|---|")
    holds = True
    for collectors, actors in FLEETS:
        fleet = Fleet(collectors=collectors, actors=actors)
        seen = observe(fleet.config(step_s=STEP_S, iterations=options.episodes))
        real = episodes_per_s(seen)
        virtual = virtual_rate(fleet, iterations=options.episodes)
        print(
            f"| {collectors} x {actors} | {real:.2f} | {virtual:.2f} | {virtual / real:.2f} |",
            flush=True,
        )
        holds &= LEAST <= virtual / real <= MOST
    return int(not holds)


if __name__ == "__main__":
    sys.exit(main())
