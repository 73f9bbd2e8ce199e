"""The state of a run as its ports report it."""

from collections.abc import Sequence

from fullrank.v1 import controller_pb2 as pb


class RunProgress:
    """Progress, state and caveats of a run.

    Args:
        committed: Iterations that were committed before.

    Attributes:
        applied: Iterations applied so far; the last of them may not be committed yet.
        committed: Iterations committed so far: they are durable and may be published.
        state: State of the run.
        message: Reason for the state, or empty.
        warm_up: Progress of the warm-up, or empty.
    """

    def __init__(self, *, committed: int = 0) -> None:
        self.applied = self.committed = committed
        self.state: pb.RunState.ValueType = pb.RUN_STATE_STARTING
        self.message = self.warm_up = ""
        self._caveats: dict[str, str] = {}

    def start(self, message: str) -> None:
        """Report the reason that the start waits."""
        self.message = message

    def warming(self, text: str) -> None:
        """Report the progress of the warm-up; empty after it."""
        self.warm_up = text

    def run(self, message: str = "") -> None:
        """Report that iterations are under way."""
        self.state, self.message = pb.RUN_STATE_RUNNING, message

    def stall(self, reason: str) -> bool:
        """Report why no iteration can be committed; False if that was already reported."""
        before = self.state, self.message
        self.state, self.message = pb.RUN_STATE_STALLED, reason
        return before != (self.state, self.message)

    def finish(self) -> None:
        """Report that all iterations are committed."""
        self.state = pb.RUN_STATE_FINISHED
        self.message = f"{self.committed} iterations committed"

    @property
    def finished(self) -> bool:
        """True once all iterations are committed and audited."""
        return self.state == pb.RUN_STATE_FINISHED

    @property
    def caveats(self) -> Sequence[str]:
        """Guarantees that the run does not give, a line each."""
        return tuple(self._caveats.values())

    def record_caveat(self, name: str, text: str) -> None:
        """Report a guarantee that the run does not give, in place of an earlier text."""
        self._caveats[name] = text

    def withdraw_caveat(self, name: str) -> None:
        """Report no longer that the guarantee is missing."""
        self._caveats.pop(name, None)
