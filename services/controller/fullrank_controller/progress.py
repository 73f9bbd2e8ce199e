"""The state of a run as its ports report it."""

from collections.abc import Sequence

from fullrank.common.errors import FullrankError
from fullrank.v1 import controller_pb2 as pb


class RunProgress:
    """Progress, state and caveats of a run.

    Args:
        committed: Iterations that were committed before.
        iterations: Iterations of the whole run.

    Attributes:
        applied: Iterations applied so far; the last of them may not be committed yet.
        committed: Iterations committed so far: they are durable and may be published.
        iterations: As given; an administrator may change it.
        state: State of the run.
        message: Reason for the state, or empty.
        exit_code: That of the error by which the run has failed; 0 for any other state.
        lasting: Caveats that the run has for good.
        leaving: Reason for which the ports close though the run goes on.
        warm_up: Progress of the warm-up, or empty.
    """

    def __init__(self, *, committed: int = 0, iterations: int = 0) -> None:
        self.applied = self.committed = committed
        self.iterations = iterations
        self._state: pb.RunState.ValueType = pb.RUN_STATE_STARTING
        self._message = self._outage = self.warm_up = ""
        self.exit_code, self.leaving = 0, "the controller is stopping"
        self._caveats: dict[str, str] = {}
        self.lasting: tuple[str, ...] = ()

    @property
    def state(self) -> pb.RunState.ValueType:
        """State of the run."""
        return pb.RUN_STATE_STALLED if self._outage else self._state

    @property
    def message(self) -> str:
        """Reason for the state, or empty."""
        return self._outage or self._message

    def interrupt(self, reason: str) -> bool:
        """Report a service that is away, whatever else the run waits for; empty: it is back.

        Returns:
            True if the service was there before.
        """
        before, self._outage = self._outage, reason
        return bool(reason) and not before

    def start(self, message: str) -> None:
        """Report the reason that the start waits."""
        self._message = message

    def warming(self, text: str) -> None:
        """Report the progress of the warm-up; empty after it."""
        self.warm_up = text

    def run(self, message: str = "") -> None:
        """Report that iterations are under way."""
        self._state, self._message = pb.RUN_STATE_RUNNING, message

    def stall(self, reason: str) -> bool:
        """Report why no iteration can be committed; False if that was already reported."""
        before = self._state, self._message
        self._state, self._message = pb.RUN_STATE_STALLED, reason
        return before != (self._state, self._message)

    def finish(self) -> None:
        """Report that all iterations are committed."""
        self._state = pb.RUN_STATE_FINISHED
        self._message = f"{self.committed} iterations committed"

    def fail(self, error: FullrankError) -> None:
        """Report that the run has ended by an error that a restart does not cure."""
        self._state, self._message = pb.RUN_STATE_FAILED, str(error)
        self._outage = ""
        self.exit_code = error.exit_code

    @property
    def parting(self) -> str:
        """Reason for which the ports close."""
        if self.finished:
            return f"the run is finished: {self.message}"
        if self.state == pb.RUN_STATE_FAILED:
            return f"the run failed: {self.message}"
        return f"{self.leaving}; dial again"

    @property
    def finished(self) -> bool:
        """True once all iterations are committed and audited."""
        return self._state == pb.RUN_STATE_FINISHED

    @property
    def caveats(self) -> Sequence[str]:
        """Guarantees that the run does not give, a line each."""
        return (*self._caveats.values(), *self.lasting)

    def record_caveat(self, name: str, text: str) -> None:
        """Report a guarantee that the run does not give, in place of an earlier text."""
        self._caveats[name] = text
