"""Messages on a Work stream, complete or cut short."""

from collections.abc import Sequence

import google_crc32c
from tests.fakes.computation import Contribution
from tests.fakes.faults import Fault

from fullrank.common.types import EncodedVector
from fullrank.net.codec import LEARNER_CHUNKS, EncodedField, bundle, encode_chunks
from fullrank.net.controller_client import WorkCall
from fullrank.v1 import controller_pb2 as pb
from fullrank.v1.common_pb2 import Ids


async def say(
    call: WorkCall, *, hello: pb.Hello | None = None, ready: pb.Ready | None = None
) -> None:
    await call.write(pb.LearnerMessage(hello=hello, ready=ready).SerializeToString())


async def hear(call: WorkCall) -> pb.ControllerMessage | None:
    message = await call.read()
    return message if isinstance(message, pb.ControllerMessage) else None


async def contribute(
    call: WorkCall,
    ids: Ids,
    row: int,
    coded: EncodedVector,
    computed: Contribution,
    units: Sequence[pb.UnitDone],
) -> None:
    header = pb.Coded(
        ids=ids,
        row=row,
        batch_digest=computed.batch_digest,
        items=computed.items,
        batch_bytes=computed.batch_bytes,
        compute_s=0.0,
    )
    first = pb.LearnerMessage(units=units, coded=header).SerializeToString()
    for message in bundle(
        [EncodedField(first), *encode_chunks(coded, array_id=row, field=LEARNER_CHUNKS)]
    ):
        await call.write(message)


async def break_off(call: WorkCall, fault: Fault, header: pb.Coded, coded: EncodedVector) -> None:
    message = pb.LearnerMessage(coded=header)
    for field_ in encode_chunks(coded, array_id=header.row, field=LEARNER_CHUNKS):
        message.MergeFromString(bytes(field_))
    if fault is Fault.BAD_CRC:
        message.chunks[0].crc32c ^= 1
    elif fault is Fault.CHUNKS_FIRST:
        message.ClearField("coded")
    elif fault in (Fault.DIE_MID_STREAM, Fault.HANG_MID_STREAM):
        message.chunks[0].data = message.chunks[0].data[: len(message.chunks[0].data) // 2]
        message.chunks[0].crc32c = google_crc32c.value(message.chunks[0].data)
    await call.write(message.SerializeToString())
    if fault is Fault.DIE_MID_STREAM:
        call.cancel()
