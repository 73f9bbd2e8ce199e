"""Records hold each learner's timeline in a round, and the learners whose digests were compared."""

from pathlib import Path

import pytest
from tests.integration.cluster import Cluster, resolved

from fullrank.codes import make_code

pytestmark = pytest.mark.integration


async def test_a_record_tells_what_each_learner_did_and_in_that_order(tmp_path: Path) -> None:
    late = ("stragglers.name=fixed_k", "stragglers.k=1", "stragglers.delay_s=30.0")
    async with Cluster(tmp_path, resolved(*late)) as cluster:
        cluster.serve(4)
        await cluster.finished()
    load = make_code("cyclic", rows=4, units=3).load
    for record in cluster.records():
        assert set(record.assigned_s) == {*record.received, *record.late}
        assert set(record.started_s) == set(record.sent_s) == set(record.received)
        for learner in record.received:
            order = [
                record.assigned_s[learner],
                record.started_s[learner],
                record.sent_s[learner],
                record.arrival_s[learner],
                record.round_s,
            ]
            assert order == sorted(order)
            assert record.audited[learner] == load[record.rows[learner]]
        assert record.decodable_s is not None
        assert max(record.assigned_s.values()) <= record.decodable_s <= record.round_s
