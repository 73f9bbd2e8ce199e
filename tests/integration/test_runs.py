"""Whole runs over real servers in one event loop: they commit the bits of the one-process run."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.cluster import Cluster, reference_digests, resolved

from fullrank.common.errors import NotFound
from fullrank.common.types import EncodedVector, FloatArray
from fullrank.host.shared_memory import ReadBlock
from fullrank.net import replay_client
from fullrank.net.codec import EncodedField, encode_chunks
from fullrank.wiring.training import training_of

pytestmark = pytest.mark.integration


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(("code.name=cyclic", "learners=4"), marks=pytest.mark.smoke),
        ("code.name=mds", "learners=5", "sampling.method=prioritised", "collect.lag=1"),
    ],
    ids=" ".join,
)
async def test_services_commit_what_one_process_commits(
    tmp_path: Path, settings: tuple[str, ...]
) -> None:
    async with Cluster(tmp_path, resolved(*settings)) as cluster:
        cluster.serve(cluster.config.learners)
        status = await cluster.finished()
    assert status.iterations_committed == cluster.config.iterations
    assert cluster.digests() == reference_digests(cluster.config)
    assert all(record.exact for record in cluster.records())


def refuse_mapping(path: Path, instance: bytes) -> None:
    """Map no table, as on another host."""
    raise NotFound(f"{path} is on another host")


@pytest.mark.parametrize("mapped", [True, False])
async def test_learners_that_cannot_map_the_table_are_sent_their_minibatches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, mapped: bool
) -> None:
    encoded: list[int] = []

    def encode(rows: FloatArray, **how: Any) -> Iterator[EncodedField]:
        encoded.append(len(rows))
        return encode_chunks(rows, **how)

    monkeypatch.setattr("fullrank_replay.servicer.encode_chunks", encode)
    if not mapped:
        monkeypatch.setattr(replay_client, "MappedTable", refuse_mapping)
    # No learner reads late, and the controller, which maps no table, recomputes nothing.
    waits_for_all = resolved("code.name=uncoded", "learners=3", "audit.every=0")
    async with Cluster(tmp_path, waits_for_all) as cluster:
        cluster.serve(3)
        status = await cluster.finished()
        assert [learner.maps_table for learner in status.learners] == [mapped] * 3
    assert cluster.digests() == reference_digests(cluster.config)
    assert encoded == ([] if mapped else [16] * cluster.config.iterations)


@pytest.mark.parametrize("torn", ["nothing", "sections", "vectors"])
async def test_what_is_torn_in_shared_memory_is_sent_and_bits_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, torn: str
) -> None:
    """Every process of this test is this one, so all learners share memory; each row is needed."""
    read, config = ReadBlock.read, resolved("code.name=uncoded", "learners=3")
    length = training_of(config.config).problem.vector_size

    def torn_read(self: ReadBlock, offset: int, into: EncodedVector, *, checksum: int) -> bool:
        kind = "vectors" if into.size == length else "sections"
        return read(self, offset, into, checksum=checksum ^ (kind == torn))

    monkeypatch.setattr(ReadBlock, "read", torn_read)
    async with Cluster(tmp_path, config) as cluster:
        cluster.serve(3)
        status = await cluster.finished()
        shared = torn == "nothing"
        assert [learner.shares_memory for learner in status.learners] == [shared] * 3
    assert cluster.digests() == reference_digests(cluster.config)
    streamed = [record.bytes_received.get("coded", 0) for record in cluster.records()]
    assert streamed == [0 if shared else 3 * 4 * length] * cluster.config.iterations
