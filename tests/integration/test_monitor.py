"""MonitorService over real runs, also with a client that knows only reflection."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from tests.integration.cluster import Cluster, resolved
from tests.waiting import WAIT_S, eventually

from fullrank.common.errors import ServiceLost
from fullrank.common.types import FloatArray
from fullrank.host.run_directory import resolve
from fullrank.runs.checkpoint import newest
from fullrank.training.evaluation import Greedy
from fullrank.v1 import monitor_pb2 as pb
from fullrank.v1.monitor_pb2_grpc import MonitorServiceStub
from fullrank.wiring.training import training_of

pytestmark = pytest.mark.integration

HIDDEN = 16
"""Iterations of the tiny configuration."""


def announced(cluster: Cluster) -> bool:
    try:
        resolve("127.0.0.1:0", cluster.run_dir, "monitor")
    except ServiceLost:
        return False
    return True


@asynccontextmanager
async def channel_of(cluster: Cluster) -> AsyncIterator[grpc.aio.Channel]:
    await eventually(lambda: announced(cluster), what="the monitor listens")
    address = resolve("127.0.0.1:0", cluster.run_dir, "monitor")
    async with grpc.aio.insecure_channel(address) as channel:
        yield channel


@asynccontextmanager
async def monitor(cluster: Cluster) -> AsyncIterator[Any]:
    async with channel_of(cluster) as channel:
        yield MonitorServiceStub(channel)


def by_hand(parameters: FloatArray, observation: FloatArray, *, outputs: int) -> FloatArray:
    """The policy as monitor.proto defines it, shape (copies, outputs)."""
    below, rest = observation, parameters
    for width in (HIDDEN, HIDDEN, outputs):
        layer, rest = np.split(rest, [width * (below.shape[1] + 1)])
        weights = layer.reshape(width, -1)
        above = below @ weights[:, :-1].T + weights[:, -1]
        below = np.maximum(above, 0.0)
    assert not rest.size
    return above


async def test_policies_are_those_of_the_newest_checkpoint_and_lie_as_the_proto_says(
    tmp_path: Path,
) -> None:
    async with Cluster(tmp_path, resolved("checkpoint.every=4")) as cluster:
        cluster.serve()
        async with monitor(cluster) as stub:
            with pytest.raises(grpc.aio.AioRpcError, match="holds no checkpoint yet"):
                await anext(aiter(stub.GetPolicies(pb.GetPoliciesRequest())))
            cluster.learners(4)
            await cluster.finished()
            told = [each async for each in stub.GetPolicies(pb.GetPoliciesRequest())]
    assert {each.iteration for each in told} == {3}
    training = training_of(cluster.config)
    training.trainer.load(newest(tmp_path / "checkpoints").arrays)
    sizes = [agent.observation_size for agent in training.collector.agents]
    observation = np.random.default_rng(0).standard_normal((7, sum(sizes))).astype(np.float32)
    greedy = Greedy(training.algorithm.actor)(observation)
    parameters = {each.chunk.array: np.frombuffer(each.chunk.data, "<f4") for each in told}
    outputs = [
        by_hand(parameters[agent], own, outputs=5).argmax(axis=1)
        for agent, own in enumerate(np.split(observation, np.cumsum(sizes)[:-1], axis=1))
    ]
    assert np.array_equal(np.stack(outputs), [each.argmax(1) for each in np.split(greedy, 3, 1)])
    training.collector.close()


async def test_a_client_that_knows_only_reflection_lists_and_calls_it(tmp_path: Path) -> None:
    async with Cluster(tmp_path, resolved()) as cluster:
        cluster.serve(4)
        await cluster.finished()
        async with channel_of(cluster) as channel:
            pool = await reflected(channel, "fullrank.v1.MonitorService")
            service = pool.FindServiceByName("fullrank.v1.MonitorService")
            methods = {method.name: method for method in service.methods}
            assert {"GetStatus", "Watch", "GetCode", "GetConfiguration"} <= set(methods)
            watch = methods["Watch"]
            call = channel.unary_stream(
                "/fullrank.v1.MonitorService/Watch",
                request_serializer=GetMessageClass(watch.input_type).SerializeToString,
                response_deserializer=GetMessageClass(watch.output_type).FromString,
            )(GetMessageClass(watch.input_type)(until_now=True))
            responses: list[Any] = [each async for each in call]
    seen = [each.update_digest.hex() for told in responses for each in told.iterations]
    assert seen == cluster.digests()


async def reflected(channel: grpc.aio.Channel, symbol: str) -> DescriptorPool:
    """The server's description of itself, with every imported file."""
    stub = reflection_pb2_grpc.ServerReflectionStub(channel)
    call = stub.ServerReflectionInfo()
    await call.write(reflection_pb2.ServerReflectionRequest(file_containing_symbol=symbol))
    response = await asyncio.wait_for(call.read(), WAIT_S)
    call.cancel()
    pool = DescriptorPool()
    files = [
        FileDescriptorProto.FromString(data)
        for data in response.file_descriptor_response.file_descriptor_proto
    ]
    known: set[str] = set()
    while files:
        ready = next(each for each in files if known.issuperset(each.dependency))
        pool.Add(ready)
        known.add(ready.name)
        files.remove(ready)
    return pool
