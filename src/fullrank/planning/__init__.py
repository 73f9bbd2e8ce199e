"""The planner behind ``code.name = "auto"``: which code suits the times that a run measures.

``Planner`` takes an ``Observation`` an iteration, what services see and no more, and answers with
a ``Plan``. docs/adr/0009-planner.md has the reasons and what was tried.
"""

from fullrank.planning.candidates import Candidate, candidates
from fullrank.planning.forecast import Forecast
from fullrank.planning.observation import Observation
from fullrank.planning.planner import EVERY, Plan, Planner

__all__ = ["EVERY", "Candidate", "Forecast", "Observation", "Plan", "Planner", "candidates"]
