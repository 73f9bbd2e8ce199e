"""The record of an iteration, projected from its round, its collection and its streams."""

from collections import Counter
from dataclasses import dataclass

from fullrank.audit.proof import Evidence
from fullrank.common.updates import update_digest
from fullrank.runs.record import IterationRecord
from fullrank.training.rollouts import Collected
from fullrank_controller.rounds.round_runner import RoundResult


@dataclass(frozen=True, slots=True, kw_only=True)
class DecidedIteration:
    """An iteration whose round is decided and whose update is not yet applied."""

    result: RoundResult
    collected: Collected
    evidence: Evidence
    """Contents of the journal from which its units can be recomputed."""
    variant: str
    """Variant of the environment."""
    collect_s: float
    """Time to collect and append the transitions, seconds."""
    dispatched_at: float
    """Loop time before the first assignment."""
    bytes_sent: Counter[str]
    """Bytes to learners in this iteration, by kind."""
    bytes_received: Counter[str]
    """Bytes from learners in this iteration, by kind."""

    def record(self, *, round_s: float) -> IterationRecord:
        """The record of the iteration.

        Args:
            round_s: From the first assignment until the parameters were updated, seconds.
        """
        decision, timeline = self.result.decision, self.result.timeline
        returns, sides = self.collected.returns, self.collected.side_returns
        opened = self.result.opened
        round_, code = opened.round, opened.assignment.code
        return IterationRecord(
            iteration=round_.iteration,
            term=opened.identity.term,
            epoch=opened.assignment.epoch,
            attempt=opened.attempt,
            code=code.name,
            code_rows=code.rows,
            tolerance=code.tolerance,
            variant=self.variant,
            return_mean=float(returns.mean()) if len(returns) else None,
            side_returns={side: float(ends.mean()) for side, ends in sides.items() if len(ends)},
            round_s=round_s,
            collect_s=self.collect_s,
            compute_s=timeline.compute_s,
            assigned_s=timeline.assigned_s,
            started_s=timeline.started_s,
            sent_s=timeline.sent_s,
            arrival_s=timeline.arrival_s,
            decodable_s=timeline.decodable_s,
            decode_s=timeline.decode_s,
            rows=timeline.rows,
            audited=round_.reported,
            received=tuple(j for j in round_.received if j != decision.culprit),
            late=self.result.late,
            exact=decision.exact,
            condition=round_.condition,
            error_bound=decision.error_bound,
            variance=decision.variance,
            update_digest=update_digest(decision.digests),
            quarantined=() if decision.culprit is None else (decision.culprit,),
            bytes_sent=dict(self.bytes_sent),
            bytes_received=dict(self.bytes_received),
        )
