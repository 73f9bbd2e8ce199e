"""Claim: in Wireless, tables beat random play with few states, and DARL1N beats tables with many.

For each of five draws of q the tabular scalable actor-critic (SAC) and DARL1N learn at z = 2 and
z = 10 from the transitions of 2,000 episodes, and play the same episodes afterwards. The claim
holds if SAC earns more than random play at z = 2, where a user has 4 states, and DARL1N more than
SAC at z = 10, where it has 1,024: both differences, paired by draw, have 95 % intervals above 0.
[DARL1N]'s own claims about both are judged beside it. The runs are those of ``fullrank reproduce
darl1n`` at paper scale.

    OMP_NUM_THREADS=1 python benchmarks/wireless.py
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from fullrank_reproduction import claim_results
from fullrank_reproduction.cells import run
from fullrank_reproduction.darl1n.scales import PAPER
from fullrank_reproduction.darl1n.training import wireless
from fullrank_reproduction.darl1n.training.published import DARL1N
from fullrank_reproduction.darl1n.training.report import draw_wireless

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "wireless.png"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--directory", type=Path, help="keeps results, to continue from them")
    directory = parser.parse_args().directory
    budget = PAPER.budget
    with tempfile.TemporaryDirectory() as scratch:
        cells = wireless.cells(budget, time.process_time)
        results = run(cells, directory or Path(scratch))
    print(wireless.said(budget))
    print(f"\n{wireless.of_wireless(results, budget)}\n")
    print(claim_results.as_list({"Fig. 5": wireless.judge_wireless(results, budget)}))
    draw_wireless(results, budget, PICTURE)
    few, many = wireless.DEADLINES
    leads = (
        wireless.lead(results, budget, few, of=wireless.SAC, over=wireless.RANDOM),
        wireless.lead(results, budget, many, of=DARL1N, over=wireless.SAC),
    )
    return not all(lead.low > 0.0 for lead in leads)


if __name__ == "__main__":
    sys.exit(main())
