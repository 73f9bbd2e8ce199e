"""Sides of a team: sizes and names."""

from collections.abc import Iterable

from fullrank.common.errors import ConfigError
from fullrank.environments.base import AgentSpec, Discrete

MOVES = Discrete(5, relaxed=True)
"""Movement: none, +x, -x, +y, -y."""


def group(
    name: str,
    number: int,
    *,
    observation: int,
    always_zero: Iterable[int] = (),
    action: Discrete = MOVES,
    side: str | None = None,
) -> list[AgentSpec]:
    """Agents ``name_0``, ``name_1``, ...

    Args:
        name: Prefix of their names.
        number: Number of agents.
        observation: Number of entries of an observation.
        always_zero: Entries of an observation that are always zero, ascending.
        action: Action of each agent.
        side: Side of the agents; None: ``name``.
    """
    zeros = tuple(always_zero)
    return [
        AgentSpec(
            name=f"{name}_{i}",
            observation_size=observation,
            action=action,
            side=side or name,
            always_zero=zeros,
        )
        for i in range(number)
    ]


def opponents(task: str, *, agents: int, adversaries: int) -> tuple[int, int]:
    """M - K and K.

    Args:
        task: For the message.
        agents: M; 0 means 8.
        adversaries: K; 0 means half of M.

    Raises:
        ConfigError: A side would be empty.
    """
    total = agents or 8
    opposed = adversaries or total // 2
    if not 1 <= opposed < total:
        raise ConfigError(
            f"{task}: M agents, K of them adversaries, need 1 <= K < M; M = {total}, K = {opposed}"
        )
    return total - opposed, opposed


def require_landmarks(task: str, landmarks: int, *, least: int) -> None:
    """Raise ``ConfigError`` unless L is at least ``least``."""
    if landmarks < least:
        raise ConfigError(f"{task}: L landmarks, at least {least}, are needed; L = {landmarks}")
