"""Processes that compute at the same time."""

import multiprocessing
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from threading import Thread
from typing import TypeVar

from threadpoolctl import threadpool_limits

Computed = TypeVar("Computed")


def computed(
    jobs: Mapping[str, Callable[[], Computed]], *, workers: int
) -> Iterator[tuple[str, Computed]]:
    """Yield names and results of jobs as they end.

    If one fails or the iterator is closed, jobs that have not begun are given up.

    Args:
        jobs: Jobs by name; they are pickled.
        workers: Processes to start at most, with one thread each.
    """
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(workers, len(jobs)), context, _begin) as pool:
        pending = {pool.submit(job): name for name, job in jobs.items()}
        try:
            for future in as_completed(pending):
                yield pending[future], future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _begin() -> None:
    import torch

    threadpool_limits(limits=1)
    torch.set_num_threads(1)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
