"""A run's policies as they are published."""

from collections.abc import Iterator

from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    retry_if_result,
    stop_after_delay,
    wait_random_exponential,
)

from fullrank.cli.policies import Trained, Version
from fullrank.cli.sources import Source
from fullrank.common.errors import CheckpointUnusable, NotFound, ServiceLost

SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 10.0
"""Between two looks for newer policies."""


def follow(source: Source, *, seen: Version, patience_s: float) -> Iterator[Trained]:
    """Newer policies of a run as they come, to its last ones; those missed meanwhile are skipped.

    Args:
        source: The run.
        seen: The policies seen last.
        patience_s: How long newer ones may take.

    Raises:
        ServiceLost: They took longer.
    """
    while seen.iteration < source.config.iterations - 1:
        found = _await(source, seen, patience_s)
        seen = found.version
        yield found


def _await(source: Source, seen: Version, patience_s: float) -> Trained:
    def give_up(attempt: RetryCallState) -> None:
        assert attempt.outcome is not None
        reason = attempt.outcome.exception() or "is the run still going?"
        raise ServiceLost(
            f"{source.name} has published no policies after iteration "
            f"{seen.iteration} for {patience_s:g} s: {reason}"
        )

    patient = Retrying(
        retry=retry_if_result(lambda found: found is None)
        | retry_if_exception_type((CheckpointUnusable, NotFound, ServiceLost)),
        wait=wait_random_exponential(multiplier=SHORTEST_PAUSE_S, max=LONGEST_PAUSE_S),
        stop=stop_after_delay(patience_s),
        retry_error_callback=give_up,
    )
    found = patient(source.newer, seen)
    assert found is not None
    return found
