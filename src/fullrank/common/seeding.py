"""Keyed random streams: every draw is a pure function of (seed, purpose, indices).

No generator is shared or advanced between iterations, so two learners that need the same draw make
the same draw, independent of earlier computations. Draws are made on the CPU for every
device, but for the noise of actions on CUDA.
"""

import hashlib
import struct

import numpy as np
from numpy.random.bit_generator import ISeedSequence
from numpy.typing import DTypeLike, NDArray

_START = np.zeros(4, np.uint64)
"""Counter of every new stream, which NumPy takes longer to make than to copy."""


def stream(seed: int, purpose: str, *indices: int) -> np.random.Generator:
    """The generator of one purpose: Philox keyed by (seed, purpose, indices).

    Args:
        seed: The run's seed, any Python integer that fits 64 bits.
        purpose: What is drawn, for example ``"target_action"``.
        *indices: Iteration, agent, copy, ... in the order that the purpose documents.
    """
    return keyed(key(seed, purpose, *indices))


def key(seed: int, purpose: str, *indices: int) -> NDArray[np.int32]:
    """The key of a stream, two words in four halves, for whoever draws on another device."""
    return np.frombuffer(_digest(seed, purpose, indices), dtype="<i4")


def keyed(halves: NDArray[np.int32]) -> np.random.Generator:
    """The generator of the stream with this key."""
    key = _Key(halves.view(np.uint64))
    return np.random.Generator(np.random.Philox(key, counter=_START))  # type: ignore[arg-type]


class _Key(ISeedSequence):
    """A Philox key in place of a NumPy seed.

    ``Philox(key=...)`` gives the same stream, but first asks the system for entropy.
    """

    def __init__(self, words: NDArray[np.uint64]) -> None:
        self._words = words

    def generate_state(self, n_words: int, dtype: DTypeLike = np.uint32) -> NDArray[np.uint64]:
        """The key, the only state that Philox requests."""
        return self._words


def derive(seed: int, purpose: str, *indices: int) -> int:
    """A 31-bit integer seed for other libraries, keyed as ``stream``."""
    return int.from_bytes(_digest(seed, purpose, indices)[:8], "little") >> 33


def _digest(seed: int, purpose: str, indices: tuple[int, ...]) -> bytes:
    words = struct.pack(f"<{1 + len(indices)}q", seed, *indices)
    return hashlib.blake2b(words + purpose.encode(), digest_size=16).digest()
