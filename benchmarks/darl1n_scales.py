"""Claim: DARL1N's time of an iteration grows no faster than linearly in M to 96, MADDPG's does.

Fig. 2 of [DARL1N] as `fullrank reproduce darl1n` times it, in CPU seconds: Food Collection at one
density (24 agents and pieces of food in a square of side 5), in which agents see the six nearest
pieces and up to six neighbours, so that an observation is as long in any team. An iteration of
MADDPG and MFAC has 4 copies x 25 steps of the environment, the updates of all units, Adam and the
targets, on one processor; one of DARL1N has a machine for each learner, as in the paper: B samples
and the update of a unit by the learner that takes longest, Adam and the targets, without what the
network takes. B = 256 in all. Beside it is DARL1N on one processor, all units in turn. A round has
an iteration of every method and team, in turns; medians, and the exponent of M with its 95 %
interval over the rounds, for all teams and for those of 24 to 96, by which it is judged: in smaller
arenas most of the team is around every agent. Exits with 1 if the interval of DARL1N's reaches
above 1.1 or into that of another method.

    OMP_NUM_THREADS=1 python benchmarks/darl1n_scales.py
"""

import argparse
import sys
import time
from pathlib import Path

from fullrank_reproduction.darl1n.training.figures import draw_scaling
from fullrank_reproduction.darl1n.training.scaling import judge_scaling, measured, of_scaling
from fullrank_reproduction.verdicts import Held, as_table

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "darl1n_scales.png"
TEAMS = (3, 6, 12, 24, 48, 96)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=9)
    spent = measured(TEAMS, parser.parse_args().rounds, time.process_time)
    verdicts = judge_scaling(TEAMS, spent)
    print(of_scaling(TEAMS, spent), as_table({"Fig. 2": verdicts}), sep="\n\n")
    draw_scaling(TEAMS, spent, PICTURE)
    linear, faster, *_ = verdicts
    return 0 if linear.held is faster.held is Held.HELD else 1


if __name__ == "__main__":
    sys.exit(main())
