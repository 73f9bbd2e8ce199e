"""Records of iterations and injections come back as they were said."""

import math

import pytest
from google.protobuf.descriptor import Descriptor
from google.protobuf.json_format import MessageToDict
from hypothesis import given
from hypothesis import strategies as st

from fullrank.common.errors import ConfigError
from fullrank.config import PluginSettings
from fullrank.net.monitor_messages import decode_iteration, encode_iteration
from fullrank.net.straggler import decode_model, encode_model
from fullrank.runs.record import IterationRecord
from fullrank.v1 import monitor_pb2 as pb

FINITE = st.floats(allow_nan=False, allow_infinity=False)
OPTIONAL = st.none() | FINITE
COUNT = st.integers(0, 2**32 - 1)
LEARNERS = st.integers(0, 99)
TIMES = st.dictionaries(LEARNERS, FINITE, max_size=5)
SIZES = st.dictionaries(st.text(max_size=9), st.integers(0, 2**63 - 1), max_size=3)


@given(
    st.builds(
        IterationRecord,
        iteration=st.integers(0, 2**63 - 1),
        term=COUNT,
        epoch=COUNT,
        attempt=COUNT,
        code_rows=COUNT,
        tolerance=COUNT,
        return_mean=OPTIONAL,
        side_returns=st.dictionaries(st.text(max_size=9), FINITE, max_size=3),
        win_rate=OPTIONAL,
        statistics=st.dictionaries(st.text(max_size=9), FINITE, max_size=3),
        round_s=FINITE,
        collect_s=FINITE,
        decode_s=FINITE,
        decodable_s=OPTIONAL,
        condition=OPTIONAL,
        error_bound=OPTIONAL,
        compute_s=TIMES,
        assigned_s=TIMES,
        started_s=TIMES,
        sent_s=TIMES,
        arrival_s=TIMES,
        rows=st.dictionaries(LEARNERS, COUNT, max_size=5),
        audited=st.dictionaries(LEARNERS, COUNT, max_size=5),
        received=st.lists(LEARNERS, unique=True, max_size=5).map(tuple),
        late=st.lists(LEARNERS, unique=True, max_size=5).map(sorted).map(tuple),
        quarantined=st.lists(LEARNERS, max_size=2).map(tuple),
        caveats=st.lists(st.text(max_size=9), max_size=2).map(tuple),
        update_digest=st.binary(max_size=16).map(bytes.hex),
        bytes_sent=SIZES,
        bytes_received=SIZES,
    )
)
def test_a_record_survives_the_message(record: IterationRecord) -> None:
    data = encode_iteration(record).SerializeToString()
    assert decode_iteration(pb.Iteration.FromString(data)) == record


def test_a_parameter_that_is_infinite_or_no_number_is_refused() -> None:
    for value in (math.inf, -math.inf, math.nan):
        message = encode_model(PluginSettings(name="fixed_k", params={"delay_s": value}))
        with pytest.raises(ConfigError, match="cannot be read"):
            decode_model(message)


def test_a_model_comes_back_as_it_was_said() -> None:
    settings = PluginSettings(name="fixed_k", params={"delay_s": 0.5, "k": 1})
    assert decode_model(encode_model(settings)) == settings


INDICES = {"learner", "row", "collector", "iteration", "block", "epoch", "attempt", "rank"}
AMOUNTS = {"tolerance", "iterations_committed"}


def test_zero_is_told_in_json_wherever_it_is_a_value_of_a_monitor_s_answers() -> None:
    seen: set[str] = set()

    def visit(message: Descriptor) -> None:
        if message.full_name in seen:
            return
        seen.add(message.full_name)
        for field in message.fields:
            if field.name in INDICES | AMOUNTS and not field.is_repeated:
                assert field.has_presence, f"{message.name}.{field.name} is to be optional"
            if field.message_type is not None:
                visit(field.message_type)

    for method in pb.DESCRIPTOR.services_by_name["MonitorService"].methods:
        visit(method.output_type)
    assert {f"fullrank.v1.{name}" for name in ("Holder", "Timeline", "LearnerStatus")} <= seen
    assert MessageToDict(pb.Holder(row=0, learner=0)) == {"row": 0, "learner": 0}
