"""A round is one trace: the controller's span, with those of its parts and of its learners."""

import runpy
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.integration.cluster import Cluster, resolved
from tests.waiting import WAIT_S

from fullrank.common.errors import ConfigError
from fullrank.net import tracing
from fullrank.net.tracing import UNTRACED, begin, exporter_of
from fullrank.v1.common_pb2 import Ids

NEEDED = "needs the extra otel"
sdk = pytest.importorskip("opentelemetry.sdk.trace", reason=NEEDED)
export = pytest.importorskip("opentelemetry.sdk.trace.export", reason=NEEDED)
memory = pytest.importorskip(
    "opentelemetry.sdk.trace.export.in_memory_span_exporter", reason=NEEDED
)

VARIABLES = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_TRACES_EXPORTER", "OTEL_SDK_DISABLED")

IDS = Ids(run="mine", term=2, iteration=7)


@pytest.fixture(autouse=True)
def without_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Takes the spans of this process."""
    exporter = memory.InMemorySpanExporter()
    provider = sdk.TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(export.SimpleSpanProcessor(exporter))
    monkeypatch.setattr(tracing, "_tracer", provider.get_tracer("test"))
    return exporter


def own(span: Any) -> dict[str, Any]:
    return {key.removeprefix("fullrank."): value for key, value in span.attributes.items()}


@pytest.mark.integration
async def test_a_late_learner_computes_past_the_decoding_of_its_round(
    tmp_path: Path, spans: Any
) -> None:
    settings = resolved(
        "learners=3",
        "code.tolerance=1",
        "iterations=2",
        "stragglers.name=fixed_k",
        "stragglers.k=1",
        f"stragglers.delay_s={100 * WAIT_S}",
    )
    async with Cluster(tmp_path / "run", settings) as cluster:
        await cluster.train()
        records = cluster.records()
    for record in records:
        found = spans.get_finished_spans()
        here = [each for each in found if own(each)["iteration"] == record.iteration]
        [root] = (each for each in here if each.parent is None)
        parts = [each for each in here if each.parent is not None]
        assert {each.parent.span_id for each in parts} == {root.context.span_id}
        assert {each.context.trace_id for each in here} == {root.context.trace_id}
        assert {own(each)["run"] for each in here} == {own(root)["run"]}
        assert root.name == "round"
        assert own(root)["late"] == record.late
        [assign] = (each for each in parts if each.name == "assign")
        [decode] = (each for each in parts if each.name == "decode")
        [commit] = (each for each in parts if each.name == "commit")
        assert own(assign)["rows"]
        assert assign.start_time <= decode.start_time <= commit.start_time <= root.end_time
        stages = {
            learner: {each.name: each for each in parts if own(each).get("learner") == learner}
            for learner in range(3)
        }
        [late] = record.late
        for learner, by_name in stages.items():
            compute = by_name["compute"]
            assert by_name["fetch"].end_time <= compute.start_time
            assert own(compute)["units"]
            if learner == late:
                assert set(by_name) == {"fetch", "compute"}
                assert own(compute)["ended_by"] == "Cancelled"
                assert compute.end_time > decode.end_time
            else:
                assert set(by_name) == {"fetch", "compute", "send"}
                assert compute.end_time <= by_name["send"].start_time
                assert compute.end_time <= decode.end_time
    known = {"run", "term", "iteration", "code", "rows", "units", "received", "late", "learner"}
    assert {key for each in found for key in own(each)} <= known | {"hedged", "ended_by"}


def example() -> dict[str, Any]:
    """The example, which has a collector of its own."""
    return runpy.run_path(str(Path(__file__).parents[2] / "examples" / "trace_a_round.py"))


def test_the_standard_variables_send_spans_by_otlp(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[Any] = []
    parts = example()
    collector, server = parts["Collector"](), grpc.server(ThreadPoolExecutor(1))
    answer = collector.Export

    def take(request: Any, context: object) -> Any:
        taken.append(request)
        return answer(request, context)

    collector.Export = take
    parts["add_TraceServiceServicer_to_server"](collector, server)
    address = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=lab")
    with tracing.tracing("learner"):
        with begin("round", IDS) as span, begin("decode", IDS, parent=span.traceparent):
            pass
        assert begin("fetch", IDS, parent="no context").traceparent  # a trace of its own
    server.stop(grace=None)
    assert begin("round", IDS) is UNTRACED
    [request] = taken
    [resource] = request.resource_spans
    facts = {each.key: each.value.string_value for each in resource.resource.attributes}
    assert facts["service.name"] == "fullrank-learner"
    assert facts["deployment.environment.name"] == "lab"
    decode, first = resource.scope_spans[0].spans
    assert decode.name == "decode"
    assert (decode.trace_id, decode.parent_span_id) == (first.trace_id, first.span_id)


TRACED = """
from fullrank.net.tracing import begin, tracing
from fullrank.v1.common_pb2 import Ids

with tracing("controller"):
    with begin("round", Ids(), late=[1]) as span:
        with begin("decode", Ids(), parent=span.traceparent):
            begin("compute", Ids(), parent=span.traceparent, learner=1, ended_by="Cancelled").end()
"""


def test_the_example_draws_a_round_of_a_command(tmp_path: Path) -> None:
    main, picture = example()["main"], tmp_path / "round.png"
    main(str(picture), sys.executable, "-c", TRACED)
    assert picture.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(SystemExit, match="no learner was late"):
        main(str(picture), sys.executable, "-c", TRACED.replace("late=[1]", "late=[]"))


def test_nothing_is_traced_without_the_variables() -> None:
    with tracing.tracing("learner"):
        span = begin("round", IDS, learner=1)
        assert span is UNTRACED
        assert span.traceparent == ""
        span.note(units=[1])
        span.end()


def test_the_variables_choose_the_exporter() -> None:
    endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}
    assert exporter_of({}) == ""
    assert exporter_of(endpoint) == "otlp_proto_grpc"
    assert (
        exporter_of(endpoint | {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"})
        == "otlp_proto_http"
    )
    assert exporter_of({"OTEL_TRACES_EXPORTER": "console"}) == "console"
    assert exporter_of(endpoint | {"OTEL_TRACES_EXPORTER": "none"}) == ""
    assert exporter_of(endpoint | {"OTEL_SDK_DISABLED": "true"}) == ""


def test_an_exporter_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "zipkin")
    with (
        pytest.raises(ConfigError, match="exporter zipkin, which is not installed; pip install"),
        tracing.tracing("learner"),
    ):
        raise AssertionError
