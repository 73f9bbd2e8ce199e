"""Training as in [DARL1N, Sec. VI-A]: DARL1N against MADDPG, MFAC, EPC and SAC."""

from fullrank_reproduction.darl1n.training.claims import judged
from fullrank_reproduction.darl1n.training.effort import Effort
from fullrank_reproduction.darl1n.training.schedule import first_cells, later_cells, work
from fullrank_reproduction.darl1n.training.section import draw, text

__all__ = ["Effort", "draw", "first_cells", "judged", "later_cells", "text", "work"]
