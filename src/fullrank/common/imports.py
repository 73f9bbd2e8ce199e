"""Imports without collection of garbage."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collecting_later() -> Iterator[None]:
    """Import modules within the block; their objects are never traversed for garbage.

    Modules leave little garbage, and looking for it takes a sixth of the time that torch and the
    services take to import.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if collecting:
            gc.enable()
