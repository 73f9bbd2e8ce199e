"""Training as in [DARL1N, Sec. VI-A]: DARL1N against MADDPG and MFAC."""

from fullrank.reproduction.darl1n.training.claims import judged
from fullrank.reproduction.darl1n.training.plan import first_cells, later_cells, size
from fullrank.reproduction.darl1n.training.section import draw, text
from fullrank.reproduction.darl1n.training.trials import Clock, Effort

__all__ = ["Clock", "Effort", "draw", "first_cells", "judged", "later_cells", "size", "text"]
