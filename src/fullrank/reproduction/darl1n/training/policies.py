"""Policies as text, to be kept with results, and back among the agents of a run."""

import hashlib
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from fullrank.algorithms import Algorithm
from fullrank.types import FloatArray, Unit

POLICY, TARGET = "policy", "target_policy"


def policies_of(algorithm: Algorithm, units: Sequence[Unit]) -> list[str]:
    """The units' policies, little-endian float32 in base64."""
    sections = {each.unit: each.id for each in algorithm.sections if each.role == POLICY}
    arrays = [algorithm.view(sections[unit]).astype("<f4") for unit in units]
    return [b64encode(array.tobytes()).decode() for array in arrays]


def digest_of(policies: Iterable[str]) -> str:
    """Of texts in order."""
    return hashlib.blake2b("".join(policies).encode(), digest_size=16).hexdigest()


def seat(algorithm: Algorithm, policies: Mapping[Unit, str]) -> None:
    """Let units play, and be expected to play, by policies of agents that see and do the same."""
    for section in algorithm.sections:
        if section.role in (POLICY, TARGET) and section.unit in policies:
            algorithm.view(section.id)[:] = _array(policies[section.unit])
    algorithm.written()


def _array(text: str) -> FloatArray:
    return np.frombuffer(b64decode(text), "<f4").astype(np.float32)
