"""Claim: a million malformed messages and files cause no crash, no hang and no memory growth.

Valid messages and files are flipped, cut, spliced, stretched or replaced by noise, from a seed, and
given to their readers: both ends of the streams of learners, collectors and writers, replay, the
sidecar, and every file that a service opens. A reader may accept its input or refuse it with an
error of its own; any other exception, a message that takes a second, or growing memory falsifies
the claim. Memory is read a hundred times for each reader; a line through the readings may rise by
less than 1 MiB from the first to the last. A reader that keeps every message must be seen to grow,
which validates the method.

    python benchmarks/fuzz.py --messages 1000000
"""

import argparse
import asyncio
import gc
import logging
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType

import numpy as np
import psutil

from fuzz_collecting import (
    collector_stream,
    draws,
    order_stream,
    writer_answers,
    writer_stream,
)
from fuzz_targets import (
    Target,
    configuration,
    controller_stream,
    files,
    learner_stream,
    refusals,
    replay,
    sidecar,
)

HANG_S = 1
GROWTH_BYTES = 2**20
READINGS = 100
WARM_UP = 0.2
"""Share of the messages before memory is judged."""
KEPT = 100_000
"""Messages for the reader that keeps them."""
FILE_SHARE = 0.05
"""Share of the messages for all files, which are slower to read."""


class Hang(Exception):
    """A message that takes too long."""


def mutated(valid: Sequence[bytes], draws: random.Random) -> bytes:
    """Make a malformed message of valid ones."""
    data = bytearray(draws.choice(valid))
    for _ in range(draws.randint(1, 4)):
        place, kind = draws.randrange(len(data) + 1), draws.randrange(6)
        if kind == 0 and place < len(data):
            data[place] ^= 1 << draws.randrange(8)
        elif kind == 1:
            del data[place : place + draws.randint(1, 16)]
        elif kind == 2:
            data[place:place] = draws.randbytes(draws.randint(1, 16))
        elif kind == 3:
            other = draws.choice(valid)
            data[place:] = other[draws.randrange(len(other) + 1) :]
        elif kind == 4:
            data[place : place + 4] = draws.choice((b"\xff" * 9 + b"\x01", b"\0" * 4, b"\x7f" * 4))
        else:
            data = bytearray(draws.randbytes(draws.randint(0, 64)))
    return bytes(data)


def bombard(name: str, target: Target, draws: random.Random, *, messages: int) -> None:
    """Give a reader malformed messages; errors other than refusals propagate."""
    for number in range(messages):
        data = mutated(target.valid, draws)
        if number % 64 == 0:
            signal.alarm(HANG_S + 1)
        try:
            with refusals():
                target.read(data)
        except Exception:
            print(f"{name}: {data!r}", file=sys.stderr)
            raise
    signal.alarm(0)


def grown_bytes(name: str, target: Target, draws: random.Random, *, messages: int) -> float:
    """Give a reader malformed messages; return the growth of memory, by a fitted line."""
    process, sizes = psutil.Process(), list[int]()
    for _ in range(READINGS):
        bombard(name, target, draws, messages=-(-messages // READINGS))
        gc.collect()
        sizes.append(process.memory_info().rss)
    return READINGS * float(np.polyfit(range(READINGS), sizes, 1)[0])


def judged(name: str, target: Target, *, messages: int, seed: int) -> bool:
    """Print a reader's row; return whether it grew."""
    draws = random.Random(f"{seed} {name}")
    bombard(name, target, draws, messages=int(messages * WARM_UP))
    started, rest = time.perf_counter(), messages - int(messages * WARM_UP)
    grown = grown_bytes(name, target, draws, messages=rest)
    took_us = 1e6 * (time.perf_counter() - started) / rest
    print(f"| {name} | {messages:,} | {took_us:.0f} | {grown / 2**20:+.2f} |", flush=True)
    return grown >= GROWTH_BYTES


def keeping(target: Target) -> Target:
    """Make a reader that also keeps its input."""
    kept: list[bytes] = []

    def read(data: bytes) -> None:
        kept.append(data)
        target.read(data)

    return Target(read=read, valid=target.valid)


def run(messages: int, seed: int) -> bool:
    """Try all targets; return whether only the reader that keeps messages grew."""
    signal.signal(signal.SIGALRM, _hang)
    print("| reader | malformed | microseconds each | grown, MiB |")
    print("|---|---|---|---|")
    memory, grew = Path("/dev/shm"), False
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as scratch:
        on_disk = files(Path(scratch))
        streams: Mapping[str, Callable[[], Target]] = {
            "learner stream": learner_stream,
            "controller stream": controller_stream,
            "replay": replay,
            "writer": writer_stream,
            "writer's answers": writer_answers,
            "draws": draws,
            "collector stream": collector_stream,
            "order stream": order_stream,
            "sidecar": sidecar,
        }
        slow = {"configuration": configuration(), **on_disk}
        share = int(messages * FILE_SHARE / len(slow))
        plan = [(name, target, share) for name, target in slow.items()]
        rest = (messages - share * len(slow)) // len(streams) + 1
        plan += [(name, make(), rest) for name, make in streams.items()]
        gc.freeze()  # existing objects need not be scanned again
        for name, target, count in plan:
            grew |= judged(name, target, messages=count, seed=seed)
    detected = judged("keeps messages", keeping(controller_stream()), messages=KEPT, seed=seed)
    return detected and not grew


def _hang(number: int, frame: FrameType | None) -> None:
    raise Hang(f"a message took more than {HANG_S} s")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)  # the losses that would be logged are intended
    asyncio.set_event_loop(asyncio.new_event_loop())  # members hold futures
    holds = run(arguments.messages, arguments.seed)
    print("\nnothing crashed, hung or grew" if holds else "\nmemory grew, or growth is not seen")
    return not holds


if __name__ == "__main__":
    sys.exit(main())
