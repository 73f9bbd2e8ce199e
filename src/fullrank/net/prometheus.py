"""Metrics for Prometheus, read when they are scraped and at no other cost."""

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from fullrank.common.errors import AddressInUse
from fullrank.host.run_directory import announce, withdraw

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

SCRAPE_S = 5.0
"""Longest wait of a scrape for the event loop."""

BOUNDS_S = (*(first * 10.0**power for power in (-3, -2, -1, 0, 1) for first in (1, 2.5, 5)), 100.0)
"""Upper bounds of the buckets of a histogram of durations."""


class Buckets:
    """Durations, counted by ``BOUNDS_S``."""

    def __init__(self) -> None:
        self._counts, self.sum_s = [0] * (len(BOUNDS_S) + 1), 0.0

    def add(self, seconds: float) -> None:
        """Count a duration."""
        self._counts[bisect_left(BOUNDS_S, seconds)] += 1
        self.sum_s += seconds

    def up_to(self) -> list[tuple[str, float]]:
        """Return each bound with the number of durations that do not exceed it."""
        bounds = [*(f"{bound:g}" for bound in BOUNDS_S), "+Inf"]
        return list(zip(bounds, map(float, accumulate(self._counts)), strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A metric and its values; ``gauge`` and ``counter`` make it."""

    name: str
    text: str
    values: Mapping[str, float] | Mapping[str, Buckets]
    """Values by label; a metric without a label has one value, under the empty text."""
    label: str
    kind: Literal["gauge", "counter", "histogram"]


def gauge(name: str, text: str, values: float | Mapping[str, float], *, label: str = "") -> Family:
    """A metric that may fall.

    Args:
        name: With its unit; ``fullrank_`` is put before it.
        text: Help for readers.
        values: One value, or with a label those by its values.
        label: Name of the label.
    """
    return Family(name=name, text=text, values=_by_label(values), label=label, kind="gauge")


def counter(
    name: str, text: str, values: float | Mapping[str, float], *, label: str = ""
) -> Family:
    """A metric that only rises; arguments as of ``gauge``, and ``_total`` follows the name."""
    return Family(name=name, text=text, values=_by_label(values), label=label, kind="counter")


def histogram(name: str, text: str, values: Mapping[str, Buckets], *, label: str = "") -> Family:
    """Durations in buckets; arguments as of ``gauge``."""
    return Family(name=name, text=text, values=values, label=label, kind="histogram")


def _by_label(values: float | Mapping[str, float]) -> Mapping[str, float]:
    return dict(values) if isinstance(values, Mapping) else {"": float(values)}


class Exporter:
    """Serves ``http://address/metrics`` while it is entered, the process's own metrics included.

    Entering raises ``AddressInUse`` if the address is taken or cannot be bound.

    Args:
        address: ``host:port``; empty: no server.
        read: Returns the metrics; called on the event loop that starts the exporter.
        run_dir: Directory in which the port is announced, as that of ``NAME-metrics``.
        name: The service.
        run: The run whose metrics they are, a label of each; empty: no such label.
        expires_at: Returns the Unix time at which the service's certificate expires; None: it has
            none.
    """

    def __init__(
        self,
        address: str,
        read: Callable[[], Iterable[Family]],
        *,
        run_dir: Path | None,
        name: str,
        run: str = "",
        expires_at: Callable[[], float | None] = lambda: None,
    ) -> None:
        self._address, self._read, self._run = address, read, run
        self._expires_at = expires_at
        self._run_dir, self._name = run_dir, f"{name}-metrics"
        self._stop: Callable[[], None] = lambda: None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def __aenter__(self) -> Self:
        if self._address:
            self._loop = asyncio.get_running_loop()
            self._serve()
        return self

    def _serve(self) -> None:
        # Imported here: it takes 80 ms, and most processes serve no metrics.
        from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server

        host, _, port = self._address.rpartition(":")
        registry = CollectorRegistry()
        registry.register(self)
        ProcessCollector(registry=registry)
        try:
            server, thread = start_http_server(int(port), host.strip("[]"), registry)
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
        for family in reading.result(SCRAPE_S):
            yield _metric(family, self._run)

    async def _on_the_loop(self) -> list[Family]:
        expires_at = self._expires_at()
        text = "Unix time at which the certificate of this service expires."
        name = "certificate_expiry_timestamp_seconds"
        known = [] if expires_at is None else [gauge(name, text, expires_at)]
        return [*self._read(), *known]

    async def __aexit__(self, *_: object) -> None:
        if self._address:
            withdraw(self._run_dir, self._name)
        await asyncio.to_thread(self._stop)  # a scrape may be waiting for this loop


def _metric(family: Family, run: str) -> Any:
    from prometheus_client.metrics_core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
    )

    name, named = f"fullrank_{family.name}", [family.label] if family.label else []
    constant = {"run": run} if run and family.label != "run" else {}
    labels = [*named, *constant]
    kinds: dict[str, type[Any]] = {
        "histogram": HistogramMetricFamily,
        "counter": CounterMetricFamily,
        "gauge": GaugeMetricFamily,
    }
    metric: Any = kinds[family.kind](name, family.text, labels=labels)
    for value, own in family.values.items():
        where = [*[value][: len(named)], *constant.values()]
        content = (own.up_to(), own.sum_s) if isinstance(own, Buckets) else (own,)
        metric.add_metric(where, *content)
    return metric
