"""A learner that speaks Work directly and misbehaves in every way the controller must survive."""

from tests.fakes.faults import Fault
from tests.fakes.learner import Ending, FakeLearner

__all__ = ["Ending", "FakeLearner", "Fault"]
