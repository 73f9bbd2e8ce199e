"""Replicas of a service: processes that share one import of torch, supervised by their parent."""

import asyncio
import os
import signal
import sys
import traceback
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import partial

from fullrank.common.errors import FullrankError
from fullrank.rpc.process import STOPPING, Launch, ignore_signals, print_error, signals_held


def run_replicas(launch: Launch, replica: Callable[[Launch, int], int]) -> int:
    """Fork ``launch.replicas`` processes and wait for their end; returns the exit code.

    They are forked before any thread or gRPC object exists, so that torch is imported once;
    unchanged pages are shared. A replica ends with this process, even if that is killed: this
    process alone holds the writing end of a pipe, which then closes.

    Args:
        launch: Arguments of the service.
        replica: Runs the replica of a number; returns its exit code.
    """
    pipe, held = os.pipe()
    supervised = replace(launch, supervisor=pipe)
    with signals_held():  # a signal between the first fork and the handlers would leave orphans
        children = [
            _fork(partial(replica, supervised, number), close=held)
            for number in range(launch.replicas)
        ]
        for number in STOPPING:
            signal.signal(number, lambda *_: _pass_on(children))
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    ignore_signals()
    return next((code for code in codes if code), 0)


def _fork(replica: Callable[[], int], *, close: int) -> int:
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        os.close(close)
        code = replica()
    except Exception:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _pass_on(children: list[int]) -> None:
    ignore_signals()
    for child in children:
        try:
            os.kill(child, signal.SIGTERM)
        except ProcessLookupError:
            continue


def run_replica(serving: Coroutine[object, object, None]) -> int:
    """Run one replica to its end; returns its exit code."""
    try:
        asyncio.run(serving)
    except FullrankError as error:
        print_error(error)
        return error.exit_code
    return 0
