"""Spans of a round by OpenTelemetry, which the standard ``OTEL_*`` variables turn on and configure.

The context travels in assignments as the ``traceparent`` of W3C Trace Context, so that the spans of
learners belong to the controller's round. Without the variables a span is an object that does
nothing, and no package is imported. The tracer is global, as OpenTelemetry's own are.
"""

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import entry_points
from threading import Thread
from typing import TYPE_CHECKING, Any, Self

from fullrank import __version__
from fullrank.common.errors import ConfigError
from fullrank.v1.common_pb2 import Ids

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

EXPORTERS = "opentelemetry_traces_exporter"
"""Entry points of exporters by name; ``otlp_proto_grpc`` is that of OTLP by gRPC."""

FLUSH_S = 2.0
"""Longest time by which a collector of spans that is away delays the end of a service, seconds."""

_tracer: "Tracer | None" = None


class TraceSpan:
    """Part of a round under way; it ends with its block, or before. By default it does nothing.

    Args:
        span: That of OpenTelemetry.
    """

    def __init__(self, span: Any = None) -> None:
        self._span = span

    @property
    def traceparent(self) -> str:
        """The context of its parts, for ``begin``; empty if there is no tracing."""
        if self._span is None:
            return ""
        context = self._span.get_span_context()
        return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"

    def note(self, **attributes: Any) -> None:
        """Add attributes."""
        if self._span is not None:
            self._span.set_attributes(
                {f"fullrank.{key}": value for key, value in attributes.items()}
            )

    def end(self) -> None:
        """End it, unless it has ended."""
        if self._span is not None and self._span.is_recording():
            self._span.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.note(ended_by=kind.__name__)
        self.end()


UNTRACED = TraceSpan()


def begin(name: str, ids: Ids, *, parent: str = "", **attributes: Any) -> TraceSpan:
    """Begin a span.

    Args:
        name: What is done.
        ids: The iteration for which it is done.
        parent: ``traceparent`` of the span that it is a part of; empty: it is the first of a trace.
        **attributes: What else is known of it, by names that follow ``fullrank.``.
    """
    if _tracer is None:
        return UNTRACED
    from opentelemetry.context import Context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    context = TraceContextTextMapPropagator().extract({"traceparent": parent}, context=Context())
    span = TraceSpan(_tracer.start_span(name, context=context))
    span.note(run=ids.run, term=ids.term, iteration=ids.iteration, **attributes)
    return span


@contextmanager
def tracing(service: str) -> Iterator[None]:
    """Trace the rounds of a service if the variables ask for it; at the end, send what is left.

    Raises:
        ConfigError: The variables name an exporter that does not exist or is not installed.
    """
    global _tracer
    exporter = exporter_of(os.environ)
    if not exporter:
        yield
        return
    try:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        [found] = entry_points(group=EXPORTERS, name=exporter)
        sent_by = found.load()()
    except (ImportError, ValueError):
        raise ConfigError(
            f"the OTEL_* variables ask for the exporter {exporter}, which is not installed; pip "
            "install 'fullrank[otel]' has that of OTLP by gRPC"
        ) from None
    own = {"service.instance.id": f"{socket.gethostname()}/{os.getpid()}"}
    if "OTEL_SERVICE_NAME" not in os.environ:
        own |= {"service.name": f"fullrank-{service}", "service.version": __version__}
    provider = TracerProvider(resource=Resource.create(own), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(sent_by))
    _tracer = provider.get_tracer("fullrank", __version__)
    try:
        yield
    finally:
        _tracer = None
        ending = Thread(target=provider.shutdown, daemon=True)
        ending.start()
        ending.join(FLUSH_S)


def exporter_of(environ: Mapping[str, str]) -> str:
    """Entry point of the exporter that the variables ask for; empty without tracing."""
    endpoints = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    default = "otlp" if any(map(environ.get, endpoints)) else "none"
    name = environ.get("OTEL_TRACES_EXPORTER") or default
    if name == "none" or environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return ""
    if name != "otlp":
        return name
    protocol = environ.get("OTEL_EXPORTER_OTLP_PROTOCOL") or "grpc"
    protocol = environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or protocol
    return f"otlp_proto_{protocol.partition('/')[0]}"
