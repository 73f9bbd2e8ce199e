"""A process's metrics for Prometheus: read when they are asked for, and at no other cost."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from fullrank.common.errors import AddressInUse
from fullrank.rpc.addresses import announce, withdraw

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

SCRAPE_S = 5.0
"""Longest wait for the event loop to give its numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A metric with its values, one for each value of its label."""

    name: str
    """With its unit; ``fullrank_`` goes before it, and ``_total`` behind that of a counter."""
    text: str
    values: Mapping[str, float] = field(default_factory=dict)
    label: str = ""
    """Name of the label; without one there is one value, under the empty text."""
    kind: Literal["gauge", "counter"] = "gauge"


def one(
    name: str, text: str, value: float, *, kind: Literal["gauge", "counter"] = "gauge"
) -> Family:
    """A metric without a label."""
    return Family(name=name, text=text, values={"": value}, kind=kind)


class Exposition:
    """Serves ``http://address/metrics``, with those of the process itself.

    Args:
        address: ``host:port``; empty to serve nothing.
        read: Gives the numbers; called on the event loop that starts it.
        run_dir: Where the port is announced, as that of ``NAME-metrics``.
        name: The service.
    """

    def __init__(
        self,
        address: str,
        read: Callable[[], Iterable[Family]],
        *,
        run_dir: Path | None,
        name: str,
    ) -> None:
        self._address, self._read = address, read
        self._run_dir, self._name = run_dir, f"{name}-metrics"
        self._stop: Callable[[], None] = lambda: None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def start(self) -> None:
        """Serve.

        Raises:
            AddressInUse: The address is taken or cannot be bound.
        """
        if self._address:
            self._loop = asyncio.get_running_loop()
            self._serve()

    def _serve(self) -> None:
        # Imported here: it takes 80 ms, and most processes serve no metrics.
        from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server

        host, _, port = self._address.rpartition(":")
        registry = CollectorRegistry()
        registry.register(self)
        ProcessCollector(registry=registry)
        try:
            server, thread = start_http_server(int(port), host, registry)
        except OSError as error:
            raise AddressInUse(
                f"cannot listen on metrics.prometheus = {self._address}: {error.strerror}; stop "
                "the other process or choose another address"
            ) from error

        def stop() -> None:
            server.shutdown()
            server.server_close()
            thread.join()

        self._stop = stop
        announce(self._run_dir, self._name, f"{host}:{server.server_port}")

    def describe(self) -> list["Metric"]:
        """Nothing is known before it is read."""
        return []

    def collect(self) -> Iterator["Metric"]:
        """The numbers as they are now; Prometheus' client calls it on its own thread."""
        assert self._loop is not None
        reading = asyncio.run_coroutine_threadsafe(self._on_the_loop(), self._loop)
        yield from map(_metric, reading.result(SCRAPE_S))

    async def _on_the_loop(self) -> list[Family]:
        return list(self._read())

    async def stop(self) -> None:
        """Serve no more."""
        if self._address:
            withdraw(self._run_dir, self._name)
        await asyncio.to_thread(self._stop)  # a scrape that waits for the loop must not wait for us


def _metric(family: Family) -> "Metric":
    from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

    make = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
    labels = [family.label] if family.label else []
    metric = make(f"fullrank_{family.name}", family.text, labels=labels)
    for value, number in family.values.items():
        metric.add_metric([value] if family.label else [], number)
    return metric
