"""Delay models: the stragglers of an iteration, and how late they are.

>>> FixedK(k=2, delay_s=0.5).delays(seed=3, iteration=0, learners=4)
array([0. , 0.5, 0.5, 0. ])
"""

from fullrank.stragglers.additive import Bernoulli, Exponential, FixedK, HeavyK, NoDelay
from fullrank.stragglers.base import (
    DelayModel,
    Delays,
    FollowsTime,
    Lateness,
    SlowsUnits,
    costs_of,
    delay_models,
    factors_of,
    lateness_of,
    model_at,
    register,
    stretches_of,
)
from fullrank.stragglers.slow import SlowLearners, SlowUnits
from fullrank.stragglers.trace import Trace

__all__ = [
    "Bernoulli",
    "DelayModel",
    "Delays",
    "Exponential",
    "FixedK",
    "FollowsTime",
    "HeavyK",
    "Lateness",
    "NoDelay",
    "SlowLearners",
    "SlowUnits",
    "SlowsUnits",
    "Trace",
    "costs_of",
    "delay_models",
    "factors_of",
    "lateness_of",
    "model_at",
    "register",
    "stretches_of",
]
