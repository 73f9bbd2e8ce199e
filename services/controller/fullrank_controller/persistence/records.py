"""An iteration as it is recorded: what the round, the collection and the streams say of it."""

from collections import Counter

from fullrank.common.updates import update_digest
from fullrank.rounds.round import Round
from fullrank.runs.record import IterationRecord
from fullrank.training.rollouts import Collected
from fullrank_controller.membership.assignment import Deal
from fullrank_controller.rounds.round_runner import Gathered
from fullrank_controller.run_state import Run


def record_of(
    run: Run,
    current: Deal,
    *,
    variant: str,
    opened: Round,
    collected: Collected,
    gathered: Gathered,
    collect_s: float,
    round_s: float,
    sent: Counter[str],
    received: Counter[str],
) -> IterationRecord:
    """The record of a decided iteration, before it is committed.

    Args:
        run: Its term and attempt.
        current: The deal that it was gathered under.
        variant: Of the environment.
        opened: The round.
        collected: The iteration's transitions.
        gathered: How the round went.
        collect_s: Waiting for the transitions and appending them, seconds.
        round_s: From the first assignment until the parameters were new, seconds.
        sent: Bytes to learners in this iteration, by kind.
        received: Bytes from them.
    """
    decision, returns = gathered.decision, collected.returns
    return IterationRecord(
        iteration=opened.iteration,
        term=run.term,
        epoch=current.epoch,
        attempt=run.attempt,
        code=current.code.name,
        code_rows=current.code.rows,
        tolerance=current.code.tolerance,
        variant=variant,
        return_mean=float(returns.mean()) if len(returns) else None,
        side_returns={
            side: float(values.mean())
            for side, values in collected.side_returns.items()
            if len(values)
        },
        round_s=round_s,
        collect_s=collect_s,
        compute_s=gathered.times.compute_s,
        assigned_s=gathered.times.assigned_s,
        started_s=gathered.times.started_s,
        sent_s=gathered.times.sent_s,
        arrival_s=gathered.times.arrival_s,
        decodable_s=gathered.times.decodable_s,
        audited=opened.reported,
        rows=gathered.rows,
        decode_s=gathered.decode_s,
        received=tuple(each for each in opened.received if each != decision.culprit),
        late=gathered.late,
        exact=decision.exact,
        condition=opened.condition,
        error_bound=decision.error_bound,
        variance=decision.variance,
        update_digest=update_digest(decision.digests),
        quarantined=() if decision.culprit is None else (decision.culprit,),
        bytes_sent=dict(sent),
        bytes_received=dict(received),
    )
