"""Delay models: the stragglers of an iteration, and how late they are.

>>> FixedK(k=2, delay_s=0.5).delays(seed=3, iteration=0, learners=4)
array([0. , 0.5, 0.5, 0. ])
"""

from fullrank.stragglers.additive import Bernoulli, FixedK
from fullrank.stragglers.base import DelayModel, delay_models, register

__all__ = ["Bernoulli", "DelayModel", "FixedK", "delay_models", "register"]
