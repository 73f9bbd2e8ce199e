"""A group of ranks of a run in one process: this process is rank 0, and starts and ends the others.

Commands and small results take a pipe to each rank, gradients and networks the collectives of
``torch.distributed``. A rank ends with its pipe, so with this process, however that ends.
"""

import logging
import os
import signal
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from fullrank.algorithms import Algorithm, Problem
from fullrank.algorithms.devices import placed, visible
from fullrank.common.errors import ConfigError, FullrankError, ServiceLost
from fullrank.common.rows import Rows
from fullrank.config import RunConfig
from fullrank.host.children import START_S, RankProcesses
from fullrank.runs.journal import UPDATE_BYTES
from fullrank.training.centralised import Targets
from fullrank.training.ranks import Division, Rank, Share, divide, received_bytes
from fullrank.wiring.training import Training, training_of

log = logging.getLogger(__name__)


class Collectives:
    """The wire of a rank over ``torch.distributed``, with a deadline on each operation.

    Attributes:
        rank: Number of this rank.
        received_bytes: Bytes that it received, an addition counted as a ring moves it.
        sent_bytes: Bytes that the others received from it.
    """

    def __init__(self, seat: "_Seat", count: int, *, timeout_s: float) -> None:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # all ranks are on this host
        os.environ.setdefault("TORCH_NCCL_BLOCKING_WAIT", "1")  # raise at the deadline, not abort
        self.rank, self._count = seat.rank, count
        self.received_bytes = self.sent_bytes = 0.0
        self._device = torch.device(seat.device if seat.backend == "nccl" else "cpu")
        dist.init_process_group(
            seat.backend,
            init_method=f"file://{seat.store}",
            rank=seat.rank,
            world_size=count,
            timeout=timedelta(seconds=timeout_s),
        )

    def add(self, values: Tensor) -> None:
        """Replace values by their sum over all ranks."""
        there = values.to(self._device)
        dist.all_reduce(there)
        values.copy_(there)
        moved = 2 * (self._count - 1) / self._count * values.nbytes
        self.received_bytes += moved
        self.sent_bytes += moved

    def send(self, values: Tensor, *, source: int) -> None:
        """Replace values by those of one rank."""
        there = values.to(self._device)
        dist.broadcast(there, src=source)
        values.copy_(there)
        if source == self.rank:
            self.sent_bytes += (self._count - 1) * values.nbytes
        else:
            self.received_bytes += values.nbytes

    def close(self) -> None:
        """Leave the group."""
        with suppress(RuntimeError):
            dist.destroy_process_group()


@dataclass(frozen=True, slots=True)
class _Seat:
    """Place of a rank in its group and on its host."""

    rank: int
    device: str
    """``cpu`` or ``cuda:K``."""
    backend: str
    store: str
    """File in which the ranks find each other."""


def _serve(config: RunConfig, division: Division, seat: _Seat, pipe: Connection) -> None:
    """Run a rank until its pipe ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for rank 0
    torch.set_num_threads(config.compute.threads)
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        try:
            if seat.device != "cpu":
                torch.cuda.set_device(seat.device)
            training = training_of(seated(config, seat.device))
            training.collector.close()
            pipe.send(None)  # built
            wire = _collectives(config, seat)
            rank = Rank(training.algorithm, division, wire, seed=config.seed)
            while (command := pipe.recv()) is not None:
                name, arguments = command
                pipe.send(getattr(rank, name)(**arguments))
        except FullrankError as error:
            pipe.send(error)
        except RuntimeError as error:
            pipe.send(ServiceLost(f"rank {seat.rank}: {str(error).splitlines()[0]}"))


def seated(config: RunConfig, device: str) -> RunConfig:
    """Let a rank compute on its device, and step there unless the run steps elsewhere."""
    stepping = config.controller.device
    if stepping == config.compute.device:
        stepping = device
    return replace(
        config,
        compute=replace(config.compute, device=device),
        controller=replace(config.controller, device=stepping),
    )


def _collectives(config: RunConfig, seat: _Seat) -> Collectives:
    return Collectives(seat, config.ranks.count, timeout_s=config.controller.deadline_s)


class Group:
    """Rank 0 of a group: computes the targets of an iteration, and is the run's ``Optimiser``.

    Args:
        config: The resolved configuration.
        algorithm: This rank's.
        backend: ``gloo`` or ``nccl``.
        folder: An empty folder in which the ranks find each other.

    Attributes:
        wire: Counts the bytes that this rank received.

    Raises:
        ConfigError: The units cannot be divided among so many ranks.
        ServiceLost: A rank did not start.
    """

    def __init__(
        self, config: RunConfig, algorithm: Algorithm, *, backend: str, folder: Path
    ) -> None:
        self._config, self._problem = config, algorithm.problem
        count = config.ranks.count
        division = divide(self._problem, count, config.ranks.split)
        self._summed, self._computed = division.summed, np.empty(0, np.float32)
        self._failure: FullrankError | None = None
        self._steps = 0
        devices = devices_of(config, self._problem)
        seats = [
            _Seat(rank, device, backend, str(folder / "ranks"))
            for rank, device in enumerate(devices)
        ]
        log.info("ranks count=%d backend=%s devices=%s", count, backend, ",".join(devices))
        self._processes = RankProcesses(
            _serve,
            [(config, division, seat) for seat in seats[1:]],
            timeout_s=config.controller.deadline_s,
        )
        try:
            self._processes.replies(within_s=START_S)
            self.wire = _collectives(config, seats[0])
            self._rank = Rank(algorithm, division, self.wire, seed=config.seed)
        except BaseException:
            self._end()
            raise

    @property
    def pids(self) -> tuple[int, ...]:
        """Return the numbers of the other ranks' processes."""
        return self._processes.pids

    def compute(
        self,
        batch: Rows,
        *,
        iteration: int,
        check_cancelled: Callable[[], None] = lambda: None,
    ) -> Targets:
        """Compute the targets, as ``Centralised`` does; once begun, it is not abandoned.

        Targets too large for the journal stay with their ranks; ``updates`` then is a stand-in of
        their shape.
        """
        check_cancelled()
        shares: list[Share] = self._all("compute", batch=np.asarray(batch), iteration=iteration)
        digests = {target: digest for share in shares for target, digest in share.digests.items()}
        reports = {unit: report for share in shares for unit, report in share.reports.items()}
        updates = shares[0].updates
        if not self._summed:
            shape = (len(digests), self._problem.vector_size)
            updates = np.broadcast_to(np.float32(np.nan), shape)
            if updates.nbytes <= UPDATE_BYTES:
                updates = np.concatenate([share.updates for share in shares])
        self._computed = updates
        return Targets(
            updates=updates,
            digests=tuple(digests[target] for target in sorted(digests)),
            reports=tuple(reports[unit] for unit in sorted(reports)),
        )

    def step(self, targets: Rows) -> Mapping[str, float]:
        """Apply the targets; those computed last are where they are needed."""
        given = None if targets is self._computed else np.asarray(targets)
        by_rank: list[Mapping[str, float]] = self._all("step", updates=given)
        self._steps += 1
        return {name: value for own in by_rank for name, value in own.items()}

    def state(self) -> Mapping[str, np.ndarray[Any, Any]]:
        """Return the arrays of a checkpoint, from the ranks that have them."""
        return {name: array for part in self._all("state") for name, array in part.items()}

    def load(self, state: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Restore the arrays returned by ``state`` in every rank."""
        self._all("load", state=dict(state))

    def _all(self, name: str, **arguments: Any) -> list[Any]:
        """Let all ranks do the same; returns each one's result, this one's first.

        Raises:
            FullrankError: A rank failed; the group has ended.
        """
        try:
            if self._failure is not None:
                raise self._failure
            self._processes.tell([(name, arguments)] * (self._config.ranks.count - 1))
            try:
                own = getattr(self._rank, name)(**arguments)
            except RuntimeError as error:  # a collective failed: another rank died, hangs or raised
                self._processes.replies()
                raise ServiceLost(f"rank 0: {str(error).splitlines()[0]}") from error
            return [own, *self._processes.replies()]
        except FullrankError as error:
            self._failure = error  # of a broken group there is no state to save
            self._end()
            raise

    def close(self) -> None:
        """End the ranks, and log what this one sent and received in an update."""
        if self._steps:
            ranks, sent, received = (
                self._config.ranks,
                self.wire.sent_bytes,
                self.wire.received_bytes,
            )
            formula = received_bytes(self._problem, ranks.count, ranks.split)
            log.info(
                "ranks count=%d split=%s updates=%d sent_bytes=%.0f received_bytes=%.0f "
                "formula_bytes=%.0f",
                *(ranks.count, ranks.split, self._steps),
                *(sent / self._steps, received / self._steps, formula),
            )
        self._processes.close()
        self._leave()

    def _end(self) -> None:
        self._processes.kill()
        self._leave()

    def _leave(self) -> None:
        if dist.is_initialized():
            self.wire.close()


@contextmanager
def ranks_of(config: RunConfig, training: Training) -> Iterator[Group | None]:
    """Start the configured group, whose optimiser the training then has; None for one rank.

    Raises:
        ConfigError: The ranks, their devices or their backend do not fit.
        ServiceLost: A rank did not start.
    """
    if config.ranks.count == 1:
        yield None
        return
    backend = backend_of(config, training.problem)
    alone = training.trainer.algorithm
    with tempfile.TemporaryDirectory(prefix="fullrank-ranks-") as folder:
        group = Group(config, alone, backend=backend, folder=Path(folder))
        training.trainer.algorithm = replace(alone, optimiser=group)
        try:
            yield group
        finally:
            training.trainer.algorithm = alone
            group.close()


def devices_of(config: RunConfig, problem: Problem) -> list[str]:
    """Return the device of each rank.

    Raises:
        ConfigError: There are too few devices, or one is not there.
    """
    count, named, devices = config.ranks.count, config.compute.device, visible()
    place = partial(placed, named, devices=devices, accelerated=problem.accelerated)
    automatic = named == "auto" and place() != "cpu"
    if devices < count and (named == "cuda" or automatic):
        raise ConfigError(
            f"ranks.count = {count} needs a CUDA device for each rank, and this host has "
            f"{devices}: use fewer ranks, or compute.device = 'cpu'"
        )
    return [place(rank) for rank in range(count)]


def backend_of(config: RunConfig, problem: Problem) -> str:
    """Return the backend of the collectives: nccl on CUDA devices, one for each rank, else gloo.

    Ranks that share a named device, ``cuda:K``, take gloo: nccl needs a device for each.

    Raises:
        ConfigError: The devices do not fit.
    """
    own = devices_of(config, problem)
    return "nccl" if "cpu" not in own and len({*own}) == len(own) else "gloo"
