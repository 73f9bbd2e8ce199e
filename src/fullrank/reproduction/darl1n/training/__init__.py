"""Training as in [DARL1N, Sec. VI-A]: DARL1N against MADDPG and MFAC, in Tables I to IV."""

from fullrank.reproduction.darl1n.training.claims import judge_training
from fullrank.reproduction.darl1n.training.plan import adversaries, learners
from fullrank.reproduction.darl1n.training.section import draw, text
from fullrank.reproduction.darl1n.training.trials import Clock, Effort

__all__ = ["Clock", "Effort", "adversaries", "draw", "judge_training", "learners", "text"]
