"""Heads of containers as messages."""

import numpy as np

from fullrank.common.errors import InvalidContribution
from fullrank.rpc.codec import Assembler, chunks
from fullrank.training.heads import ContainerHead
from fullrank.v1 import controller_pb2 as pb


def head_message(container: int, head: ContainerHead) -> pb.ContainerHead:
    """Encode the head of a container."""
    return pb.ContainerHead(
        container=container,
        updates=head.version,
        chunks=chunks(head.values.astype(np.float32, copy=False), array_id=container),
    )


def head_of(message: pb.ContainerHead, *, size: int) -> ContainerHead:
    """Decode a head.

    Args:
        message: The message.
        size: Entries of a head.

    Raises:
        InvalidContribution: It has another size, or does not match its checksums.
    """
    values = np.empty(size, np.float32)
    assembler = Assembler(values, array_id=message.container)
    try:
        for chunk in message.chunks:
            assembler.add(chunk)
    except InvalidContribution as error:
        raise InvalidContribution(f"the head of container {message.container}: {error}") from None
    if not assembler.complete:
        raise InvalidContribution(f"the head of container {message.container} is not complete")
    return ContainerHead(message.updates, values)
