"""The planner: observations in, a plan out; changes of code are few and each has a reason."""

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from fullrank.codes.analysis import witnesses
from fullrank.common.errors import CodeError
from fullrank.common.seeding import stream
from fullrank.common.types import LearnerId, Matrix, Times
from fullrank.config.auto_code import START, AutoCodeSettings
from fullrank.planning.candidates import Candidate, Forecast, Plan, candidates, forecast
from fullrank.planning.cluster import Links
from fullrank.planning.costs import Traffic
from fullrank.planning.delay_model import (
    Scenarios,
    completed_cases,
    resample,
    scenarios,
    typical_unit_s,
)
from fullrank.planning.history import FREE, History, estimate_links, transfer_times
from fullrank.planning.observation import Observation
from fullrank.planning.portable import gamma_tail, log
from fullrank.planning.tuning import TUNING


def rounds_since_change(recent: Sequence[tuple[float, float]], mean_s: float) -> int:
    """Number of latest rounds that together contradict their forecasts; 0 for none.

    Ranks of rounds that agree with their forecasts are uniform in [0, 1]. Two tests are applied to
    the latest n rounds, for every n: the mean rank, which shows small changes of most rounds, and
    the sum of -log(1 - rank) [Fisher32], which shows a few rounds longer than nearly all forecast
    ones. The change is at the n that chance explains least.

    Args:
        recent: Rank of each round among its forecast, and its seconds; newest last.
        mean_s: Mean of the present forecast.
    """
    rank, round_s = np.array(recent)[::-1].T  # newest first
    rank = np.clip(rank, TUNING.finest_rank, 1 - TUNING.finest_rank)
    count = np.arange(1, len(rank) + 1)
    shifted = gamma_tail(np.ones_like(count), 6 * np.cumsum(rank - 0.5) ** 2 / count) / 2
    longer = gamma_tail(2 * count, np.cumsum(-log(1.0 - rank)))
    apart = np.abs(np.cumsum(round_s) / count / mean_s - 1.0) > TUNING.least_shift
    chance = np.where(apart, np.minimum(shifted, longer), 1.0)
    return int(chance.argmin()) + 1 if chance.min() < TUNING.unlikely else 0


def iterations_since_pace_change(pace_s: Times) -> int:
    """Number of latest iterations in which learners have another pace than before; 0 for none.

    For every n, the latest n paces of each learner are compared with its earlier ones by rank
    [Mann47], and the squares are summed over the learners. The change is at the n that chance
    explains least.

    Args:
        pace_s: Seconds a unit in K iterations of one code, newest last, nan where unobserved,
            shape (K, N).
    """
    from scipy.stats import rankdata  # large, and needed by plans only

    observed = np.isfinite(pace_s)[::-1]
    ranks = np.nan_to_num(rankdata(pace_s, axis=0, nan_policy="omit"))[::-1]
    total = observed.sum(axis=0)
    newer, mean = np.cumsum(observed, axis=0), (total + 1) / 2
    spread = newer * (total - newer) * (total + 1) / 12
    enough = (newer > 0) & (total - newer >= TUNING.earlier_paces)
    deviation = np.cumsum(ranks, axis=0) - newer * mean
    square = np.divide(deviation**2, spread, out=np.zeros(enough.shape), where=enough)
    chance = gamma_tail(enough.sum(axis=1), square.sum(axis=1) / 2)
    chance[: TUNING.later_paces - 1] = 1.0
    chance[TUNING.tested_rounds :] = 1.0
    return int(chance.argmin()) + 1 if chance.size and chance.min() < TUNING.unlikely else 0


class Planner:
    """Plans for one run; equal observations give equal plans.

    Args:
        auto: The settings.
        units: M.
        seed: The run's seed.
        moved: Bytes that each row of a matrix moves.
        max_variance: The run's limit, as in ``Arrivals``.
        target: T that the codes have to recover; by default every unit.
        faults: ``audit.byzantine``: every unit is computed alike by one learner more.
        undecodable: ``controller.undecodable``: with ``recode`` and ``hedge`` rows are added at
            once for those of a lost learner, so that a code need not survive a loss; with
            ``hedge`` also for those of late ones.
    """

    def __init__(
        self,
        auto: AutoCodeSettings,
        *,
        units: int,
        seed: int,
        moved: Callable[[Matrix], Traffic],
        max_variance: float = math.inf,
        target: Matrix | None = None,
        faults: int = 0,
        undecodable: str = "recode",
    ) -> None:
        self._units, self._target, self._holders = units, target, faults + 1
        self._seed = seed
        self._moved = moved
        self._traffic_of: dict[Candidate, Traffic] = {}
        self._recent: deque[tuple[float, float]] = deque(maxlen=TUNING.tested_rounds)
        self._forecasts: Mapping[str, Forecast] = {}
        self._history = History()
        self._using = f"cyclic,tolerance={START}"
        self._chosen: str | None = None
        self._max_variance = max_variance
        self._least = 0 if undecodable in ("recode", "hedge") else 1
        self._hedged = undecodable == "hedge"
        self._budget = ChangeBudget(auto.margin)

    def observe(self, observation: Observation) -> None:
        """Add an iteration; when recent rounds contradict their forecasts, keep only those."""
        self._history.append(observation)
        self._using = observation.code
        if self._using == self._chosen:
            self._budget.spend()
            self._chosen = None
        if (expected := self._forecasts.get(self._using)) is not None:
            self._compare(observation.round_s, expected)
        self._budget.refill()

    def _compare(self, round_s: float, expected: Forecast) -> None:
        self._recent.append((expected.rank(round_s), round_s))
        if since := rounds_since_change(self._recent, expected.mean_s):
            self._keep(since)
            self._forecasts = {}

    def _keep(self, newest: int) -> None:
        self._history.keep(newest)
        self._recent.clear()

    def plan(self, learners: Sequence[LearnerId]) -> Plan:
        """The code of the next iterations, its n-th share held by the n-th of the learners.

        Raises:
            CodeError: No code for so many learners serves.
        """
        known = candidates(
            learners=len(learners),
            units=self._units,
            seed=self._seed,
            target=self._target,
            tolerance=self._least,
        )
        options = [option for option in known if witnesses(option.code) >= self._holders]
        if not options:
            raise CodeError(
                f"no code for {len(learners)} learners and {self._units} units has a tolerance of "
                f"{self._least} and {self._holders} learners that compute alike; start more "
                "learners"
            )
        current = min(options, key=self._unlike_used)
        self._chosen = None
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
                hedged=self._hedged,
            )
            for option in options
        ]
        self._forecasts = {
            option.label: each for option, each in zip(options, forecasts, strict=True)
        }
        return self._choose(options, forecasts, current)

    def _unlike_used(self, option: Candidate) -> tuple[bool, int]:
        """Zeros for the code in use; without it, the tolerance of the first iterations is next."""
        return option.label != self._using, abs(option.code.tolerance - START)

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
        quick = links == FREE and not self._hedged
        count = TUNING.scenarios if quick else TUNING.shared_scenarios
        return links, resample(past, count=count, draws=draws)

    def _choose(
        self, options: Sequence[Candidate], forecasts: Sequence[Forecast], current: Candidate
    ) -> Plan:
        """The candidate of the least cautious time, if it saves enough and a change is allowed.

        Of those that are near the least one, it is the one of the least load.
        """
        ranked = tuple(sorted(forecasts, key=lambda each: each.cautious))
        now = forecasts[options.index(current)]
        near = (1.0 + TUNING.near) * ranked[0].cautious
        place = next(place for place, each in enumerate(forecasts) if each.cautious <= near)
        chosen, best = options[place], forecasts[place]
        if best is now:
            reason = f"nothing is quicker than {now}"
        elif best.cautious > (1.0 - self._budget.margin) * now.cautious:
            reason = f"{best} saves too little over {now}"
        elif not self._budget.allows(chosen, current):
            reason = f"{best} would be quicker than {now}, but the last changes were recent"
        else:
            self._chosen = chosen.label
            return Plan(chosen, True, f"{best} instead of {now}", ranked)
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
