"""The planner: observations in, a plan out; changes of code are few and each has a reason."""

import math
from collections import deque
from collections.abc import Callable, Sequence

from fullrank.codes.analysis import witnesses
from fullrank.common.errors import CodeError
from fullrank.common.seeding import stream
from fullrank.common.types import LearnerId, Matrix
from fullrank.config.auto_code import START, AutoCodeSettings
from fullrank.planning.candidates import Candidate, candidates
from fullrank.planning.change_detection import iterations_since_pace_change, rounds_since_change
from fullrank.planning.cluster import Links
from fullrank.planning.costs import Traffic
from fullrank.planning.delay_model import (
    Scenarios,
    completed_cases,
    resample,
    scenarios,
    typical_unit_s,
)
from fullrank.planning.history import History
from fullrank.planning.link_model import FREE, estimate_links, transfer_times
from fullrank.planning.observation import Observation
from fullrank.planning.plan import Forecast, Plan, forecast
from fullrank.planning.tuning import TUNING


class Planner:
    """Plans for one run; equal observations give equal plans.

    Args:
        auto: The settings.
        units: M.
        seed: The run's seed.
        moved: Bytes that each row of a matrix moves.
        using: Label of the candidate in use.
        max_variance: The run's limit, as in ``Arrivals``.
        target: T that the codes have to recover; by default every unit.
        faults: ``audit.byzantine``: every unit is computed alike by one learner more.
    """

    def __init__(
        self,
        auto: AutoCodeSettings,
        *,
        units: int,
        seed: int,
        moved: Callable[[Matrix], Traffic],
        using: str = f"cyclic,tolerance={START}",
        max_variance: float = math.inf,
        target: Matrix | None = None,
        faults: int = 0,
    ) -> None:
        self._units, self._target, self._holders = units, target, faults + 1
        self._seed = seed
        self._moved = moved
        self._traffic_of: dict[Candidate, Traffic] = {}
        self._recent: deque[tuple[float, float]] = deque(maxlen=TUNING.tested_rounds)
        self._expected: Forecast | None = None
        self._history = History()
        self._using = using
        self._max_variance = max_variance
        self._budget = ChangeBudget(auto.margin)

    def observe(self, observation: Observation) -> None:
        """Add an iteration; when recent rounds contradict their forecasts, keep only those."""
        self._history.append(observation)
        if self._expected is not None:
            self._compare(observation.round_s, self._expected)
        self._budget.refill()

    def _compare(self, round_s: float, expected: Forecast) -> None:
        self._recent.append((expected.rank(round_s), round_s))
        if since := rounds_since_change(self._recent, expected.mean_s):
            self._keep(since)
            self._expected = None

    def _keep(self, newest: int) -> None:
        self._history.keep(newest)
        self._recent.clear()

    def plan(self, learners: Sequence[LearnerId]) -> Plan:
        """The code of the next iterations, its n-th share held by the n-th of the learners.

        Raises:
            CodeError: No code for so many learners survives a loss.
        """
        known = candidates(
            learners=len(learners), units=self._units, seed=self._seed, target=self._target
        )
        options = [option for option in known if witnesses(option.code) >= self._holders]
        if not options:
            alike = f" or has {self._holders} learners compute alike" if known else ""
            raise CodeError(
                f"no code for {len(learners)} learners and {self._units} units survives a "
                f"loss{alike}; start more learners"
            )
        current = next((option for option in options if option.label == self._using), options[0])
        self._forget_other_paces(learners)
        if len(self._history) < TUNING.first:
            reason = f"{len(self._history)} of the first {TUNING.first} iterations were seen"
            return Plan(current, False, reason)
        links, likely = self._model(learners)
        forecasts = [
            forecast(
                option,
                self._traffic(option),
                likely,
                links,
                max_variance=self._max_variance,
                holders=self._holders,
            )
            for option in options
        ]
        return self._choose(options, forecasts, current)

    def _forget_other_paces(self, learners: Sequence[LearnerId]) -> None:
        """Forget the iterations before the learners' paces changed."""
        paces = self._history.paces_of_newest_code(learners)
        if since := iterations_since_pace_change(paces):
            self._keep(self._history.since_of_newest_code(since))

    def _traffic(self, candidate: Candidate) -> Traffic:
        """Bytes of the shares with at least one unit."""
        if candidate not in self._traffic_of:
            matrix = candidate.code.blocks[candidate.code.load > 0]
            self._traffic_of[candidate] = self._moved(matrix)
        return self._traffic_of[candidate]

    def _model(self, learners: Sequence[LearnerId]) -> tuple[Links, Scenarios]:
        """Links, and scenarios of the learners, estimated from the history."""
        history, total = self._history, self._history.total
        weight, window = history.weights(), history.window(learners)
        unit_s = typical_unit_s(window, weight, history.earlier.unit_s(learners))
        links = estimate_links(history, window, unit_s, learners)
        transfer_s = transfer_times(history, window, unit_s, links, learners)
        cases = completed_cases(window, weight, unit_s, transfer_s)
        past = scenarios(
            window,
            weight,
            cases=history.earlier.extend(cases, now=total),
            unit_s=unit_s,
            transfer_s=transfer_s,
            draws=stream(self._seed, "planner_cut_off", total),
        )
        history.earlier.update(learners, unit_s)
        draws = stream(self._seed, "planner_scenario", total)
        count = TUNING.scenarios if links == FREE else TUNING.shared_scenarios
        return links, resample(past, count=count, draws=draws)

    def _choose(
        self, options: Sequence[Candidate], forecasts: Sequence[Forecast], current: Candidate
    ) -> Plan:
        """The candidate of the least cautious time, if it saves enough and a change is allowed."""
        ranked = tuple(sorted(forecasts, key=lambda option: option.cautious_s))
        now = next(option for option in ranked if option.label == current.label)
        best = ranked[0]
        chosen = next(option for option in options if option.label == best.label)
        if best is now:
            reason = f"nothing is quicker than {now}"
        elif best.cautious_s > (1.0 - self._budget.margin) * now.cautious_s:
            reason = f"{best} saves too little over {now}"
        elif not self._budget.allows(chosen, current):
            reason = f"{best} would be quicker than {now}, but the last changes were recent"
        else:
            self._budget.spend()
            self._using, self._expected = chosen.label, best
            return Plan(chosen, True, f"{best} instead of {now}", ranked)
        self._using, self._expected = current.label, now
        return Plan(current, False, reason, ranked)


class ChangeBudget:
    """A token bucket of changes of code.

    Args:
        least_margin: Share that a change must save when the bucket is full.
    """

    def __init__(self, least_margin: float) -> None:
        self._least_margin = least_margin
        self._left = float(TUNING.changes)

    def refill(self) -> None:
        """Count an iteration."""
        self._left = min(TUNING.changes, self._left + 1 / TUNING.refill)

    def spend(self) -> None:
        """Take a change."""
        self._left -= 1.0

    @property
    def margin(self) -> float:
        """Share that a change must save: larger the fewer changes are left."""
        return self._least_margin * (1.0 + TUNING.changes - self._left)

    def allows(self, chosen: Candidate, current: Candidate) -> bool:
        """True if a change is left, or two to lower the tolerance, so that it may rise again."""
        lowers = chosen.code.tolerance < current.code.tolerance
        return self._left >= (2.0 if lowers else 1.0)
