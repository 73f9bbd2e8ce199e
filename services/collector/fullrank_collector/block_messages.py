"""A played block as messages to the controller."""

from fullrank.net.codec import PLAYED_CHUNKS, bundle, encode_chunks
from fullrank.training.block_player import PlayedBlock
from fullrank.training.blocks import BlockKey
from fullrank.v1 import controller_pb2 as pb


def block_messages(
    key: BlockKey,
    played: PlayedBlock,
    *,
    digest: bytes,
    playing_s: float = 0.0,
    idle_s: float = 0.0,
) -> list[bytes]:
    """Encode a block with its claimed digest and times: its header, then its rows."""
    header = pb.Played(
        iteration=key.iteration,
        block=key.block,
        rows=len(played.rows),
        earned=played.earned.reshape(-1),
        won=played.won,
        lengths=played.lengths,
        digest=digest,
        playing_s=playing_s,
        idle_s=idle_s,
    )
    fields = encode_chunks(played.rows, array_id=key.block, field=PLAYED_CHUNKS)
    return [pb.CollectorMessage(played=header).SerializeToString(), *bundle(fields)]
