"""Processes that compute at the same time."""

import gc
import multiprocessing
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import islice
from threading import Thread
from typing import TypeVar

from threadpoolctl import threadpool_limits

from fullrank.host.process import keep_freed_pages, return_freed_pages

Computed = TypeVar("Computed")


def computed(
    jobs: Mapping[str, Callable[[], Computed]],
    *,
    workers: int,
    after: Mapping[str, str] | None = None,
) -> Iterator[tuple[str, Computed]]:
    """Yield names and results of jobs as they end.

    If one fails or the iterator is closed, jobs that have not begun are given up.

    Args:
        jobs: Jobs by name, in the order in which they begin as far as ``after`` allows; they are
            pickled.
        workers: Processes to start at most, with one thread each.
        after: The job whose result must have been yielded before another begins, by the name of
            the other.
    """
    context = multiprocessing.get_context("spawn")
    before, workers = after or {}, min(workers, len(jobs))
    waiting, running = dict(jobs), dict[Future[Computed], str]()
    with ProcessPoolExecutor(workers, context, _begin) as pool:
        try:
            while waiting or running:
                unfinished = {*waiting, *running.values()}
                ready = (name for name in waiting if before.get(name) not in unfinished)
                for name in list(islice(ready, workers - len(running))):
                    running[pool.submit(_alone, waiting.pop(name))] = name
                ended, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in ended:
                    yield running.pop(future), future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _alone(job: Callable[[], Computed]) -> Computed:
    """Run a job, and leave none of its memory to the next one."""
    try:
        return job()
    finally:
        gc.collect()
        return_freed_pages()


def _begin() -> None:
    import torch

    keep_freed_pages()
    threadpool_limits(limits=1)
    torch.set_num_threads(1)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
