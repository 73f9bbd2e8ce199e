"""A learner that is a group of ranks: processes of one host that divide the units of its rows.

This process is rank 0. It holds the stream, the parameters and the coded rows; the others receive
the sections that their units read, and return updates. A unit's bits do not depend on who computes
it, so that a group is one learner to the controller, and to a code one failure domain.
"""

import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection

import torch

from fullrank.algorithms.roles import Algorithm
from fullrank.common.errors import Cancelled, ConfigError, FullrankError, ServiceLost
from fullrank.common.types import FloatArray, UnitIndex
from fullrank.rpc.rank_processes import START_S, RankProcesses
from fullrank.training.worker import Worker
from fullrank.v1 import controller_pb2 as pb
from fullrank_learner.run_context import HostPlace, LearnerContext

CANCEL = "cancel"
"""Message that makes a rank drop the units that it computes; it has no reply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTask:
    """Units that a rank computes, and the sections that they read."""

    batch: FloatArray
    units: tuple[UnitIndex, ...]
    iteration: int
    row: int | None
    sections: Mapping[int, FloatArray]
    """Parameters of each section that the units read."""


def join_ranks(context: LearnerContext, place: HostPlace) -> None:
    """Start the other ranks of a learner, with which its context then computes.

    Args:
        context: The learner's; ranks that it had have ended.
        place: Its place on this host.

    Raises:
        ConfigError: There are more ranks than units, or their bits differ.
        ServiceLost: A rank did not start.
    """
    units, ranks = len(context.problem.units), place.ranks
    if ranks.count > units:
        raise ConfigError(
            f"ranks.count = {ranks.count} exceeds the {units} units, which the ranks of a learner "
            "divide: use fewer ranks, or a larger algorithm.micro_batches"
        )
    shared = context.welcome.SerializeToString(), place, torch.get_num_threads()
    processes = RankProcesses(
        _serve, [(*shared, rank) for rank in range(1, ranks.count)], timeout_s=ranks.timeout_s
    )
    try:
        own = context.algorithm.gradients.fingerprint(), context.probe
        for rank, reply in enumerate(processes.replies(within_s=START_S), start=1):
            if reply != own:
                raise ConfigError(
                    f"rank {rank} computes other bits than rank 0 ({reply[0]}; {own[0]}): a "
                    "learner's ranks need equal devices"
                )
    except BaseException:
        processes.kill()
        raise
    gradients = RankGradients(context.algorithm, processes)
    context.processes = processes
    context.worker = Worker(context.problem, gradients, seed=context.config.seed)


class RankGradients:
    """Gradients of a learner whose ranks divide the units of a call; implements ``Gradients``.

    Args:
        algorithm: This rank's.
        processes: The other ranks; ended once one of them is lost.
    """

    def __init__(self, algorithm: Algorithm, processes: RankProcesses) -> None:
        self._problem, self._parameters = algorithm.problem, algorithm.parameters
        self._gradients, self._processes = algorithm.gradients, processes
        self._owes = False

    def compute(
        self,
        batch: FloatArray,
        units: Sequence[UnitIndex],
        *,
        iteration: int,
        row: int | None = None,
        check_cancelled: Callable[[], None] = lambda: None,
    ) -> Iterator[tuple[UnitIndex, FloatArray]]:
        """Compute the units, this rank's first; see ``Gradients.compute``.

        Raises:
            ServiceLost: A rank died, or has not answered in time; all ranks are ended.
        """
        processes = self._processes
        if not processes.alive:
            raise ServiceLost("the ranks of this learner have ended")
        count = processes.count + 1
        assigned = [tuple(units[rank::count]) for rank in range(count)]
        try:
            if self._owes:  # to a call that was cancelled
                processes.replies(check_cancelled=check_cancelled)
                self._owes = False
            processes.tell([self._task(batch, own, iteration, row) for own in assigned[1:]])
            self._owes = True
            if assigned[0]:
                yield from self._gradients.compute(
                    batch,
                    assigned[0],
                    iteration=iteration,
                    row=row,
                    check_cancelled=check_cancelled,
                )
            replies = processes.replies(check_cancelled=check_cancelled)
            self._owes = False
        except (Cancelled, GeneratorExit):
            processes.tell([CANCEL] * processes.count)
            raise
        except FullrankError:
            processes.kill()
            raise
        for updates in replies:
            yield from updates

    def _task(
        self, batch: FloatArray, units: tuple[UnitIndex, ...], iteration: int, row: int | None
    ) -> RankTask:
        read = sorted({section for unit in units for section in self._problem.reads[unit]})
        sections = {section: self._parameters.view(section) for section in read}
        return RankTask(batch=batch, units=units, iteration=iteration, row=row, sections=sections)

    def fingerprint(self) -> str:
        """Return the numeric identity of this process, which is that of its ranks."""
        return self._gradients.fingerprint()


def _serve(welcome: bytes, place: HostPlace, threads: int, rank: int, pipe: Connection) -> None:
    """Run a rank until its pipe ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for rank 0
    torch.set_num_threads(threads)
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        try:
            context = LearnerContext(pb.Welcome.FromString(welcome), place=place, rank=rank)
            pipe.send((context.algorithm.gradients.fingerprint(), context.probe))
            while (task := pipe.recv()) is not None:
                if task != CANCEL:
                    pipe.send(_updates(context, task, pipe))
        except FullrankError as error:
            pipe.send(error)
        except RuntimeError as error:  # of torch: a device failed, or is out of memory
            pipe.send(ServiceLost(f"rank {rank}: {str(error).splitlines()[0]}"))


def _updates(
    context: LearnerContext, task: RankTask, pipe: Connection
) -> list[tuple[UnitIndex, FloatArray]]:
    """Compute a task; no updates if the next message arrives before its end."""

    def check_cancelled() -> None:
        if pipe.poll():
            raise Cancelled("another message has arrived")

    parameters = context.algorithm.parameters
    for section, values in task.sections.items():
        parameters.view(section)[:] = values
    parameters.written()
    if not task.units:
        return []
    try:
        return list(
            context.algorithm.gradients.compute(
                task.batch,
                task.units,
                iteration=task.iteration,
                row=task.row,
                check_cancelled=check_cancelled,
            )
        )
    except Cancelled:
        return []
