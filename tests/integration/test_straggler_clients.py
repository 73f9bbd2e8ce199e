"""A stock reflection client, through the sidecar."""

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)
from tests.integration.test_straggler import CYCLIC, lab
from tests.waiting import WAIT_S

pytestmark = pytest.mark.integration

LOST = "INTERNAL: Internal error from Core"
"""The status that ``grpc.aio`` shows of a call that ended while it wrote (grpc/grpc#36066)."""
ATTEMPTS = 20


def call_everything(address: str) -> dict[str, str]:
    """List the services of a port and call each method once, with an empty request."""
    with grpc.insecure_channel(address) as channel:
        database = ProtoReflectionDescriptorDatabase(channel)
        pool = DescriptorPool(database)
        return {
            f"{service}/{method.name}": _status(channel, service, method)
            for service in database.get_services()
            for method in pool.FindServiceByName(service).methods
        }


def _status(channel: grpc.Channel, service: str, method: MethodDescriptor) -> str:
    """Status of a call, made again as long as its status is lost."""
    for _ in range(ATTEMPTS):
        if (status := _call(channel, service, method)) != LOST:
            return status
    return LOST


def _call(channel: grpc.Channel, service: str, method: MethodDescriptor) -> str:
    """Status of one call; OK as soon as a stream answers."""
    kinds = {True: "stream", False: "unary"}
    shape = f"{kinds[method.client_streaming]}_{kinds[method.server_streaming]}"
    make: Any = getattr(channel, shape)
    stub = make(
        f"/{service}/{method.name}",
        request_serializer=GetMessageClass(method.input_type).SerializeToString,
        response_deserializer=GetMessageClass(method.output_type).FromString,
    )
    empty = GetMessageClass(method.input_type)()
    try:
        answer = stub(iter([empty]) if method.client_streaming else empty, timeout=WAIT_S)
        if method.server_streaming:
            next(answer)
            answer.cancel()
    except grpc.RpcError as error:
        return f"{error.code().name}: {error.details()}"
    return "OK"


async def test_a_reflection_client_lists_and_calls_every_service(tmp_path: Path) -> None:
    async with lab(tmp_path, *CYCLIC) as (cluster, straggler):
        direct = await asyncio.to_thread(call_everything, await cluster.address())
        through = await asyncio.to_thread(call_everything, straggler.address)
        control = await asyncio.to_thread(call_everything, straggler.control)
    assert through == direct
    assert direct["fullrank.v1.ControllerService/GetStatus"] == "OK"
    assert direct["fullrank.v1.ControllerService/Heartbeat"].startswith("NOT_FOUND")
    assert direct["fullrank.v1.ControllerService/Work"].startswith("INVALID_ARGUMENT")
    assert direct["grpc.health.v1.Health/Check"] == "OK"
    assert control["fullrank.v1.StragglerService/GetInjection"] == "OK"
    assert control["grpc.health.v1.Health/Watch"] == "OK"
