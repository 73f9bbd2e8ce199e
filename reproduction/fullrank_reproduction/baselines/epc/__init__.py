"""Evolutionary population curriculum ([Long20]), a baseline of [DARL1N]."""

from fullrank_reproduction.baselines.epc.curriculum import Curriculum, Stage
from fullrank_reproduction.baselines.epc.population import TrainedTeam, best, train
from fullrank_reproduction.baselines.epc.practice import Point, Practice

__all__ = ["Curriculum", "Point", "Practice", "Stage", "TrainedTeam", "best", "train"]
