"""Encode arrays as chunks, and assemble them again.

A chunk is encoded by hand around its data, as a field of the message that carries it, because the
same bytes go to many streams: concatenated fields are a valid encoding of the declared message.
"""

import math
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, NamedTuple

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from fullrank.algorithms.base import EnvironmentSpec
from fullrank.common.errors import InvalidContribution, Malformed
from fullrank.common.foreign import shown
from fullrank.config.plugins import spec_of_agents
from fullrank.config.tree import RunConfig
from fullrank.environments.base import ActionSpec, AgentSpec, Continuous, Discrete, MultiDiscrete
from fullrank.v1 import controller_pb2 as pb
from fullrank.v1.replay_pb2 import GetSamplesResponse
from fullrank.v1.tensor_pb2 import Chunk

CHUNK_BYTES = 512 * 1024
"""Between 256 KiB and 1 MiB a large array moves fastest over one stream."""

JOINED_BYTES = 2 * CHUNK_BYTES
"""Size up to which joining the messages of one stream costs less than a second write."""

LEARNER_CHUNKS = pb.LearnerMessage.DESCRIPTOR.fields_by_name["chunks"].number
CONTROLLER_CHUNKS = pb.ControllerMessage.DESCRIPTOR.fields_by_name["chunks"].number
COLLECTOR_CHUNKS = pb.CollectorOrder.DESCRIPTOR.fields_by_name["chunks"].number
SAMPLE_CHUNK = GetSamplesResponse.DESCRIPTOR.fields_by_name["chunk"].number

_DATA_TAG = bytes([Chunk.DESCRIPTOR.fields_by_name["data"].number << 3 | 2])


class EncodedField(NamedTuple):
    """An encoded field in two pieces, so that its data are copied once, into the message."""

    head: bytes
    data: memoryview | bytes = b""

    def __bytes__(self) -> bytes:
        return joined([self])

    @property
    def size(self) -> int:
        """Size in bytes."""
        return len(self.head) + len(self.data)


def encode_chunks(
    array: NDArray[np.generic], *, array_id: int, field: int
) -> Iterator[EncodedField]:
    """Chunks of ``array``, each encoded as field number ``field`` (below 16) of a message.

    They refer to the array's memory until they are joined.
    """
    for chunk, piece in _pieces(array, array_id=array_id):
        head = chunk.SerializeToString() + _DATA_TAG + _varint(len(piece))
        yield EncodedField(
            bytes([field << 3 | 2]) + _varint(len(head) + len(piece)) + head, piece.data
        )


def chunks(array: NDArray[np.generic], *, array_id: int) -> Iterator[Chunk]:
    """Chunks of ``array`` as messages."""
    for chunk, piece in _pieces(array, array_id=array_id):
        chunk.data = piece.tobytes()
        yield chunk


def _pieces(
    array: NDArray[np.generic], *, array_id: int
) -> Iterator[tuple[Chunk, NDArray[np.uint8]]]:
    """Each chunk of ``array`` without its data, and the data."""
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    for offset in range(0, len(data), CHUNK_BYTES):
        piece = data[offset : offset + CHUNK_BYTES]
        checksum = google_crc32c.value(piece)
        yield Chunk(array=array_id, offset=offset, total=len(data), crc32c=checksum), piece


def joined(fields: Iterable[EncodedField]) -> bytes:
    """One message of the fields."""
    return b"".join(chain.from_iterable(fields))


def bundle(fields: Iterable[EncodedField]) -> Iterator[bytes]:
    """Join encoded fields into messages of about ``CHUNK_BYTES``."""
    pending: list[EncodedField] = []
    size = 0
    for field in fields:
        if pending and size + field.size > CHUNK_BYTES:
            yield joined(pending)
            pending, size = [], 0
        pending.append(field)
        size += field.size
    if pending:
        yield joined(pending)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class Assembler:
    """Fills one preallocated array from chunks, which must be complete, intact and in order."""

    def __init__(self, target: NDArray[np.generic], *, array_id: int) -> None:
        self._target = target.data.cast("B")
        self._array_id = array_id
        self._filled, self._total = 0, len(self._target)

    @property
    def complete(self) -> bool:
        """True if every byte has arrived."""
        return self._filled == self._total

    def add(self, chunk: Chunk) -> None:
        """Copy a chunk to its place.

        Raises:
            InvalidContribution: A field is wrong; the message has its value and the expected one.
        """
        if (chunk.array, chunk.offset, chunk.total) != (self._array_id, self._filled, self._total):
            raise self._misplaced(chunk)
        data = chunk.data
        end = self._filled + len(data)
        if not data or end > self._total:
            raise InvalidContribution(
                f"chunk.data of {len(data)} bytes does not fit the {self._total} announced"
            )
        if google_crc32c.value(data) != chunk.crc32c:
            raise InvalidContribution(f"chunk.crc32c does not match the data at {self._filled}")
        self._target[self._filled : end] = data
        self._filled = end

    def _misplaced(self, chunk: Chunk) -> InvalidContribution:
        expected = {"array": self._array_id, "offset": self._filled, "total": self._total}
        name = next(field for field in expected if getattr(chunk, field) != expected[field])
        return InvalidContribution(
            f"chunk.{name} is {getattr(chunk, name)}, expected {expected[name]}"
        )


def encode_agent(spec: AgentSpec) -> pb.Agent:
    """An agent's interface as a message."""
    agent = pb.Agent(
        name=spec.name,
        observation_size=spec.observation_size,
        side=spec.side,
        always_zero=spec.always_zero,
        image=spec.image or (),
    )
    if isinstance(spec.action, Discrete):
        agent.discrete.n, agent.discrete.relaxed = spec.action.n, spec.action.relaxed
    elif isinstance(spec.action, MultiDiscrete):
        agent.multi_discrete.choices.extend(spec.action.choices)
    else:
        agent.continuous.low.extend(spec.action.low)
        agent.continuous.high.extend(spec.action.high)
    return agent


def encode_environment(spec: EnvironmentSpec) -> dict[str, Any]:
    """The fields of a ``Welcome`` that tell facts about the environment."""
    agents = [encode_agent(agent) for agent in spec.agents]
    return {"agents": agents, "state_size": spec.state_size, "masked": spec.masked}


AGENT_ENTRIES = 2**20
"""Most entries of an agent's observation, and of its action."""
RUN_ENTRIES = 2**22
"""Most entries of all observations, actions and the state of an environment."""


def decode_agent(agent: pb.Agent) -> AgentSpec:
    """An agent's interface from its message.

    Raises:
        ConfigError: ``always_zero`` or the image does not fit the observation.
        Malformed: It has no action, a size is out of range, a choice has no action, or a box has no
            bounds.
    """
    action = _action_of(agent)
    if max(agent.observation_size, action.size) > AGENT_ENTRIES or not action.size:
        raise Malformed(
            f"agent {shown(agent.name)} has {agent.observation_size} observed numbers and "
            f"{action.size} of action; from 1 to {AGENT_ENTRIES} are possible"
        )
    return AgentSpec(
        name=agent.name,
        observation_size=agent.observation_size,
        action=action,
        side=agent.side,
        always_zero=tuple(agent.always_zero),
        image=_image_of(agent),
    )


def _image_of(agent: pb.Agent) -> tuple[int, int, int] | None:
    if not agent.image:
        return None
    if len(agent.image) != 3:
        raise Malformed(f"agent {shown(agent.name)} has an image of {len(agent.image)} axes, not 3")
    height, width, channels = agent.image
    return height, width, channels


def decode_environment(config: RunConfig, welcome: pb.Welcome) -> EnvironmentSpec:
    """The facts that a controller tells about the configured environment.

    Raises:
        ConfigError: As ``decode_agent``.
        Malformed: As ``decode_agent``; or there are none, or all of them together are too large.
    """
    agents = [decode_agent(agent) for agent in welcome.agents]
    entries = sum(agent.observation_size + agent.action.size for agent in agents)
    if not agents or entries + welcome.state_size > RUN_ENTRIES:
        raise Malformed(
            f"{len(agents)} agents with {entries} observed numbers and actions, and a state of "
            f"{welcome.state_size}: at least one agent, and {RUN_ENTRIES} numbers, are possible"
        )
    return spec_of_agents(config, agents, state_size=welcome.state_size, masked=welcome.masked)


def _action_of(agent: pb.Agent) -> ActionSpec:
    if agent.WhichOneof("action") == "discrete":
        return Discrete(agent.discrete.n, agent.discrete.relaxed)
    if agent.WhichOneof("action") == "multi_discrete":
        choices = tuple(agent.multi_discrete.choices)
        if 0 in choices:
            raise Malformed(f"agent {shown(agent.name)} has a choice among no actions")
        return MultiDiscrete(choices)
    low, high = tuple(agent.continuous.low), tuple(agent.continuous.high)
    if len(low) != len(high) or not all(map(math.isfinite, (*low, *high))):
        raise Malformed(f"the actions of agent {shown(agent.name)} have no finite bounds")
    return Continuous(low, high)
