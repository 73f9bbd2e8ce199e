"""Client of one collector that stages its blocks in replay."""

from collections.abc import Iterator

from fullrank.common.text import plain
from fullrank.common.types import FloatArray, IntArray, RunTerm
from fullrank.host.certificates import Role
from fullrank.net.channel import PLAINTEXT, Security, open_channel
from fullrank.net.codec import chunks
from fullrank.net.errors import translated
from fullrank.net.messages import run_term_message
from fullrank.replay.table import TABLE
from fullrank.v1 import replay_pb2 as pb
from fullrank.v1.replay_pb2_grpc import ReplayServiceStub


class BlockStager:
    """Stages blocks, which the controller accepts.

    Args:
        address: ``host:port`` of replay.
        run_term: Term of the controller that opened the table.
        deadline_s: Longest time of a block, also while the service is away.
        security: Identity of the caller.
    """

    def __init__(
        self, address: str, *, run_term: RunTerm, deadline_s: float, security: Security = PLAINTEXT
    ) -> None:
        self._channel = open_channel(address, trust=security.towards(Role.REPLAY))
        self._stub = ReplayServiceStub(self._channel)
        self._peer = f"replay {plain(address)}"
        self._run_term, self._deadline_s = run_term, deadline_s

    async def stage(self, iteration: int, block: int, rows: FloatArray, lengths: IntArray) -> None:
        """Stage a block.

        Raises:
            NotFound: It is not granted.
            InvalidContribution: It could not have been played.
            StaleTerm: Another controller has opened the table since.
            ServiceLost: The service does not answer, or has no room.
        """
        with translated(self._peer):
            await self._stub.StageBlock(
                self._requests(iteration, block, rows, lengths),
                timeout=self._deadline_s,
                wait_for_ready=True,
            )

    def _requests(
        self, iteration: int, block: int, rows: FloatArray, lengths: IntArray
    ) -> Iterator[pb.StageBlockRequest]:
        """The messages of a block; the first of them names it."""
        request = pb.StageBlockRequest(
            table=TABLE,
            run_term=run_term_message(self._run_term),
            iteration=iteration,
            block=block,
            lengths=lengths,
        )
        for chunk in chunks(rows, array_id=0):
            request.chunk.CopyFrom(chunk)
            yield request
            request = pb.StageBlockRequest()

    async def close(self) -> None:
        """Close the channel."""
        await self._channel.close()
