"""Processes of a group of ranks, which start, obey and end as one.

The caller's process is rank 0. Each other rank reads commands from a pipe and answers each by one
reply; it ends with its pipe, so with the caller's process, however that ends. A rank that dies, or
does not answer in time, raises here, and the caller ends the group.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from threading import Timer
from typing import Any

from fullrank.common.errors import DeadlinePassed, FullrankError, ServiceLost

START_S = 300.0
"""Time in which the ranks import torch and build their algorithms, seconds."""


class RankProcesses:
    """Ranks 1 to G - 1 of a group.

    Args:
        target: Runs a rank, given its arguments and its end of the pipe. It must be importable by
            name, and end when the pipe does or when it receives None.
        arguments: Arguments of each rank but the first.
        timeout_s: Deadline of a message and of a reply, seconds.
    """

    def __init__(
        self, target: Callable[..., None], arguments: Sequence[Sequence[Any]], *, timeout_s: float
    ) -> None:
        self._timeout_s = timeout_s
        self._silent: set[int] = set()  # ranks that were ended within a message
        self._pipes: list[Connection] = []
        self._processes: list[SpawnProcess] = []
        spawn = get_context("spawn")  # never forked: threads and devices do not survive it
        try:
            for rank, own in enumerate(arguments, start=1):
                pipe, theirs = spawn.Pipe()
                process = spawn.Process(
                    target=target, args=(*own, theirs), name=f"rank {rank}", daemon=True
                )
                process.start()
                theirs.close()
                self._pipes.append(pipe)
                self._processes.append(process)
        except BaseException:
            self.kill()
            raise

    @property
    def pids(self) -> tuple[int, ...]:
        """Return the numbers of their processes, in order."""
        return tuple(process.pid for process in self._processes if process.pid is not None)

    def tell(self, messages: Sequence[Any]) -> None:
        """Send each rank its message; the replies name ranks that have died."""
        for rank, (pipe, message) in enumerate(zip(self._pipes, messages, strict=True), start=1):
            with (
                suppress(BrokenPipeError, ConnectionResetError),
                self._ending(rank, after_s=self._timeout_s),
            ):
                pipe.send(message)

    def replies(self, *, within_s: float | None = None) -> list[Any]:
        """Return the ranks' replies to one message, in order.

        Args:
            within_s: Longest time between two of them, seconds; by default that of the group.

        Raises:
            FullrankError: A rank raised it, died, or has not answered in time.
        """
        within_s = self._timeout_s if within_s is None else within_s
        replies: dict[int, Any] = {}
        numbers = {pipe: rank for rank, pipe in enumerate(self._pipes, start=1)}
        failure: FullrankError | None = None
        while len(replies) < len(numbers):
            open_ = [pipe for pipe in numbers if numbers[pipe] not in replies]
            ready = wait(open_, timeout=within_s)
            if not ready:
                raise failure or self._overdue([numbers[pipe] for pipe in open_], within_s)
            for pipe in (pipe for pipe in open_ if pipe in ready):
                rank = numbers[pipe]
                reply = self._receive(rank, pipe, within_s)
                if isinstance(reply, FullrankError) and not isinstance(reply, ServiceLost):
                    raise reply
                if isinstance(reply, ServiceLost):  # it noticed that another died, or hangs
                    failure = failure or reply
                replies[rank] = reply
        if failure is not None:
            raise failure
        return [replies[rank] for rank in sorted(replies)]

    def _receive(self, rank: int, pipe: Connection, within_s: float) -> Any:
        try:
            with self._ending(rank, after_s=within_s):
                return pipe.recv()
        except (EOFError, ConnectionResetError):
            if rank in self._silent:
                raise self._overdue([rank], within_s) from None
            self._processes[rank - 1].join(1.0)
            raise ServiceLost(
                f"rank {rank} of {len(self._processes) + 1} died "
                f"(exit code {self._processes[rank - 1].exitcode}); the run can be resumed"
            ) from None

    def _overdue(self, ranks: list[int], within_s: float) -> DeadlinePassed:
        silent = ", ".join(map(str, ranks))
        return DeadlinePassed(
            f"rank {silent} of {len(self._processes) + 1} has not answered within {within_s:g} s "
            "(ranks.timeout_s); the run can be resumed"
        )

    @contextmanager
    def _ending(self, rank: int, *, after_s: float) -> Iterator[None]:
        """End a rank that stands still within a message, which would block this process."""

        def end() -> None:
            self._silent.add(rank)
            self._processes[rank - 1].kill()

        timer = Timer(after_s, end)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def close(self) -> None:
        """Let the ranks end, and end those that do not."""
        for pipe in self._pipes:
            with suppress(BrokenPipeError, ConnectionResetError):
                pipe.send(None)
        for process in self._processes:
            process.join(5.0)
        self.kill()

    def kill(self) -> None:
        """End all ranks at once."""
        for process in self._processes:
            process.kill()
            process.join()
        for pipe in self._pipes:
            pipe.close()
        self._pipes, self._processes = [], []
