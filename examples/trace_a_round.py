"""Run a command with tracing, then draw the last round in which a learner was late.

    pip install 'fullrank[otel]'
    python examples/trace_a_round.py round.png fullrank train --learners 5 --stragglers 1

This is a collector of OpenTelemetry for one picture; Jaeger, Tempo and others show all rounds.
"""

import os
import subprocess
import sys
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import matplotlib.pyplot as plt
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)

COLOURS = {
    "assign": "#b07aa1",
    "fetch": "#76b7b2",
    "compute": "#4e79a7",
    "send": "#f28e2b",
    "decode": "#e15759",
    "commit": "#59a14f",
}


class Collector(TraceServiceServicer):
    """Keeps the spans that it is sent, by trace."""

    def __init__(self) -> None:
        self.traces: defaultdict[bytes, list[Any]] = defaultdict(list)

    def Export(self, request: Any, context: object) -> ExportTraceServiceResponse:
        """Keep the spans of a request."""
        for resource in request.resource_spans:
            for span in (span for scope in resource.scope_spans for span in scope.spans):
                self.traces[span.trace_id].append(span)
        return ExportTraceServiceResponse()


def attributes(span: Any) -> dict[str, Any]:
    """Attributes of a span by name."""
    return {each.key.removeprefix("fullrank."): each.value for each in span.attributes}


def last_late(traces: dict[bytes, list[Any]]) -> list[Any]:
    """Spans of the last whole round in which a learner was late."""
    rounds = [
        (span.start_time_unix_nano, spans)
        for spans in traces.values()
        for span in spans
        if span.name == "round" and attributes(span)["late"].array_value.values
    ]
    if not rounds:
        raise SystemExit("no learner was late in any round that was traced")
    return max(rounds, key=lambda each: each[0])[1]


def draw(spans: list[Any], path: str) -> None:
    """Draw a lane for the controller and each learner, in milliseconds of the round."""
    [whole] = (span for span in spans if span.name == "round")
    parts = sorted((span for span in spans if span is not whole), key=lambda span: span.name)
    learners = sorted(
        {attributes(s)["learner"].int_value for s in parts if "learner" in attributes(s)}
    )
    lanes = ["controller", *(f"learner {learner}" for learner in learners)]
    figure, axes = plt.subplots(figsize=(8, 0.42 * len(lanes) + 1.2), layout="constrained")
    for span in parts:
        named = attributes(span)
        lane = f"learner {named['learner'].int_value}" if "learner" in named else "controller"
        begun = (span.start_time_unix_nano - whole.start_time_unix_nano) / 1e6
        length = (span.end_time_unix_nano - span.start_time_unix_nano) / 1e6
        colour = COLOURS[span.name]
        bar = axes.barh(lanes.index(lane), length, left=begun, color=colour)
        if "ended_by" in named:  # it was abandoned
            bar.patches[0].set(hatch="//", edgecolor="white", linewidth=0)
        if span.name == "decode":
            axes.axvline(begun, color=colour, linewidth=1)
    axes.set_xlim(left=0)
    axes.set_yticks(range(len(lanes)), lanes)
    axes.invert_yaxis()
    axes.set_xlabel("milliseconds of the round")
    axes.set_title(f"iteration {attributes(whole)['iteration'].int_value}", fontsize="medium")
    patches = [plt.Rectangle((0, 0), 1, 1, color=colour) for colour in COLOURS.values()]
    figure.legend(patches, COLOURS, loc="outside lower center", ncols=6, frameon=False)
    figure.savefig(path, dpi=150)


def main(path: str, *command: str) -> None:
    """Run a command, and draw one of its rounds."""
    collector, server = Collector(), grpc.server(ThreadPoolExecutor())
    add_TraceServiceServicer_to_server(collector, server)
    address = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    subprocess.run(command, env=os.environ | {"OTEL_EXPORTER_OTLP_ENDPOINT": address}, check=True)
    server.stop(grace=None)
    draw(last_late(collector.traces), path)
    print(f"{len(collector.traces)} rounds; {path} shows one in which a learner was late")


if __name__ == "__main__":
    main(*sys.argv[1:])
