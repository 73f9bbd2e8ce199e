"""Training as in [DARL1N, Sec. VI-A]: DARL1N against MADDPG, MFAC, EPC and SAC."""

from fullrank_reproduction.darl1n.training.budget import Budget
from fullrank_reproduction.darl1n.training.claims import judged
from fullrank_reproduction.darl1n.training.report import draw, text
from fullrank_reproduction.darl1n.training.stages import first_cells, later_cells, work

__all__ = ["Budget", "draw", "first_cells", "judged", "later_cells", "text", "work"]
