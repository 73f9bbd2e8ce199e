"""The record of an iteration, projected from its round, its collection and its streams."""

from collections.abc import Mapping
from dataclasses import dataclass

from fullrank.common.updates import update_digest
from fullrank.runs.record import IterationRecord
from fullrank.training.rollouts import Collected
from fullrank_controller.rounds.port import DecidedRound


@dataclass(frozen=True, slots=True, kw_only=True)
class DecidedIteration:
    """An iteration whose round is decided and whose update is not yet applied."""

    round: DecidedRound
    collected: Collected
    variant: str
    """Variant of the environment."""
    collect_s: float
    """Time to collect and append the transitions, seconds."""

    agent_updates: int
    """Agents times items of the minibatch; 0 where learners draw their own."""

    def record(
        self, *, round_s: float, iteration_s: float, statistics: Mapping[str, float]
    ) -> IterationRecord:
        """The record of the iteration.

        Args:
            round_s: From the first assignment until the parameters were updated, seconds.
            iteration_s: From the update before until then, seconds.
            statistics: Statistics of the update.
        """
        rate = self.agent_updates / iteration_s if self.agent_updates and iteration_s else None
        decided, decision, timeline = self.round, self.round.decision, self.round.timeline
        returns, sides = self.collected.returns, self.collected.side_returns
        return IterationRecord(
            iteration=decided.ids.iteration,
            term=decided.ids.term,
            epoch=decided.ids.epoch,
            attempt=decided.ids.attempt,
            hedged=decided.hedged,
            code=decided.code.name,
            code_rows=decided.code.rows,
            rows_per_learner=decided.code.rows_per_learner,
            tolerance=decided.code.tolerance,
            variant=self.variant,
            return_mean=float(returns.mean()) if len(returns) else None,
            side_returns={side: float(ends.mean()) for side, ends in sides.items() if len(ends)},
            win_rate=self.collected.win_rate,
            round_s=round_s,
            collect_s=self.collect_s,
            play_s=self.collected.play_s,
            update_s=round_s - min(timeline.assigned_s.values(), default=0.0),
            iteration_s=iteration_s,
            agent_updates_per_s=rate,
            compute_s=timeline.compute_s,
            assigned_s=timeline.assigned_s,
            started_s=timeline.started_s,
            sent_s=timeline.sent_s,
            arrival_s=timeline.arrival_s,
            decodable_s=timeline.decodable_s,
            decode_s=timeline.decode_s,
            rows=timeline.rows,
            audited=decided.reported,
            received=tuple(j for j in decided.received if j != decision.culprit),
            late=decided.late,
            exact=decision.exact,
            condition=decided.condition,
            error_bound=decision.error_bound,
            variance=decision.variance,
            update_digest=update_digest(decision.digests),
            statistics={**statistics, **self.collected.statistics},
            quarantined=decided.quarantined,
            bytes_sent=dict(decided.bytes_sent),
            bytes_received=dict(decided.bytes_received),
        )
