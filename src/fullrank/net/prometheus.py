"""Metrics for Prometheus, read when they are scraped and at no other cost."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from fullrank.common.errors import AddressInUse
from fullrank.host.run_directory import announce, withdraw

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

SCRAPE_S = 5.0
"""Longest wait of a scrape for the event loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A metric and its values; ``gauge`` and ``counter`` make it."""

    name: str
    text: str
    values: Mapping[str, float]
    """Values by label; a metric without a label has one value, under the empty text."""
    label: str
    kind: Literal["gauge", "counter"]


def gauge(name: str, text: str, values: float | Mapping[str, float], *, label: str = "") -> Family:
    """A metric that may fall.

    Args:
        name: With its unit; ``fullrank_`` is put before it.
        text: Help for readers.
        values: One value, or with a label those by its values.
        label: Name of the label.
    """
    return _family(name, text, values, label, "gauge")


def counter(
    name: str, text: str, values: float | Mapping[str, float], *, label: str = ""
) -> Family:
    """A metric that only rises; arguments as of ``gauge``, and ``_total`` follows the name."""
    return _family(name, text, values, label, "counter")


def _family(
    name: str,
    text: str,
    values: float | Mapping[str, float],
    label: str,
    kind: Literal["gauge", "counter"],
) -> Family:
    by_label = dict(values) if isinstance(values, Mapping) else {"": float(values)}
    return Family(name=name, text=text, values=by_label, label=label, kind=kind)


class Exporter:
    """Serves ``http://address/metrics``, including the metrics of the process itself.

    Args:
        address: ``host:port``; empty: no server.
        read: Returns the metrics; called on the event loop that starts the exporter.
        run_dir: Directory in which the port is announced, as that of ``NAME-metrics``.
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
        """No metric: names are known only when they are read."""
        return []

    def collect(self) -> Iterator["Metric"]:
        """The metrics as they are now; the Prometheus client calls it on its own thread."""
        assert self._loop is not None
        reading = asyncio.run_coroutine_threadsafe(self._on_the_loop(), self._loop)
        yield from map(_metric, reading.result(SCRAPE_S))

    async def _on_the_loop(self) -> list[Family]:
        return list(self._read())

    async def stop(self) -> None:
        """Stop serving, and withdraw the announced address."""
        if self._address:
            withdraw(self._run_dir, self._name)
        await asyncio.to_thread(self._stop)  # a scrape may be waiting for this loop


def _metric(family: Family) -> "Metric":
    from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

    make = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
    labels = [family.label] if family.label else []
    metric = make(f"fullrank_{family.name}", family.text, labels=labels)
    for value, number in family.values.items():
        metric.add_metric([value] if family.label else [], number)
    return metric
