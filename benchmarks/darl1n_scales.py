"""Claim: up to M = 96, DARL1N's iteration time grows at most linearly in M; MADDPG's grows faster.

Fig. 2 of [DARL1N] as `fullrank reproduce darl1n` times it, in CPU seconds: Food Collection at one
density (24 agents and pieces of food in a square of side 5). Agents see the six nearest pieces and
up to six neighbours, so an observation is equally long in any team. An iteration of MADDPG and MFAC
is 4 copies x 25 environment steps, the updates of all units, Adam and the targets, on one
processor. An iteration of DARL1N has a machine for each learner, as in the paper: B samples and one
unit's update by the slowest learner, Adam and the targets, without the network. B = 256 throughout.
Beside it stands DARL1N on one processor, all units in turn. A round runs an iteration of every
method and team, in turn. The table shows medians and the exponent of M with its 95 % interval over
the rounds, for all teams and for those of 24 to 96, by which the claim is judged: in smaller arenas
most of the team is near every agent. Exits with 1 if DARL1N's interval reaches above 1.1 or into
that of another method.

    OMP_NUM_THREADS=1 python benchmarks/darl1n_scales.py
"""

import argparse
import sys
import time
from pathlib import Path

from fullrank_reproduction.claim_results import Held, as_list
from fullrank_reproduction.darl1n.training.report import draw_scaling
from fullrank_reproduction.darl1n.training.scaling import judge_scaling, measured, of_scaling

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "darl1n_scales.png"
TEAMS = (3, 6, 12, 24, 48, 96)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=9)
    spent = measured(TEAMS, parser.parse_args().rounds, time.process_time)
    verdicts = judge_scaling(TEAMS, spent)
    print(of_scaling(TEAMS, spent), as_list({"Fig. 2": verdicts}), sep="\n\n")
    draw_scaling(TEAMS, spent, PICTURE)
    linear, faster, *_ = verdicts
    return 0 if linear.held is faster.held is Held.HELD else 1


if __name__ == "__main__":
    sys.exit(main())
