"""Metrics of a process at the address that its configuration names."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import prometheus_client
import pytest

from fullrank.host.run_directory import resolve
from fullrank.net.prometheus import Exporter


@pytest.mark.parametrize(
    ("address", "host"), [("127.0.0.1:9101", "127.0.0.1"), ("[::1]:9101", "::1")]
)
async def test_metrics_are_served_at_addresses_of_both_versions_of_ip(
    address: str, host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound = []

    def start_http_server(port: int, addr: str, registry: object) -> tuple[Any, Any]:
        bound.append((addr, port))
        server = SimpleNamespace(server_port=port, shutdown=lambda: None, server_close=lambda: None)
        return server, SimpleNamespace(join=lambda: None)

    monkeypatch.setattr(prometheus_client, "start_http_server", start_http_server)
    async with Exporter(address, lambda: [], run_dir=tmp_path, name="replay"):
        assert bound == [(host, 9101)]
        assert resolve("127.0.0.1:0", tmp_path, "replay-metrics") == address
