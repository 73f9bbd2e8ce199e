"""Policies as text for results, and their use by the agents of a run."""

import hashlib
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from fullrank.algorithms import Algorithm, EnvironmentSpec
from fullrank.algorithms.actor_critic import Hyperparameters
from fullrank.algorithms.maddpg import MADDPG
from fullrank.common.types import FloatArray, UnitIndex
from fullrank.environments import AgentSpec

POLICY, TARGET = "policy", "target_policy"


def policies_of(algorithm: Algorithm, units: Sequence[UnitIndex]) -> list[str]:
    """Policies of the units as text."""
    sections = {
        section.agents[0]: section.id
        for section in algorithm.problem.sections
        if section.role == POLICY
    }
    return [text_of(algorithm.parameters.view(sections[unit])) for unit in units]


def text_of(policy: FloatArray) -> str:
    """Little-endian float32 in base64."""
    return b64encode(policy.astype("<f4").tobytes()).decode()


def array_of(text: str) -> FloatArray:
    """The array encoded by ``text_of``."""
    return np.frombuffer(b64decode(text), "<f4").astype(np.float32)


def digest_of(policies: Iterable[str]) -> str:
    """Digest of texts in order."""
    return hashlib.blake2b("".join(policies).encode(), digest_size=16).hexdigest()


def seat(algorithm: Algorithm, policies: Mapping[UnitIndex, str]) -> None:
    """Replace policies and target policies of units by those of equal agents."""
    for section in algorithm.problem.sections:
        policy = policies.get(section.agents[0])
        if section.role in (POLICY, TARGET) and policy is not None:
            algorithm.parameters.view(section.id)[:] = array_of(policy)
    algorithm.parameters.written()


def side_of(agents: Sequence[AgentSpec], policies: Sequence[str], *, seed: int) -> Algorithm:
    """One side of a contest with given policies, of any method of the engine."""
    side = MADDPG(hidden=Hyperparameters().hidden).make(
        EnvironmentSpec(agents=tuple(agents)), seed=seed, device="cpu"
    )
    seat(side, dict(enumerate(policies)))
    return side
