"""Addresses of services: fixed, or announced in the run directory."""

import shutil
from pathlib import Path

import pytest

from fullrank.common.errors import ConfigError, ServiceLost
from fullrank.host.run_directory import announce, resolve, withdraw


def test_port_0_is_resolved_by_the_announcement(tmp_path: Path) -> None:
    announce(tmp_path, "replay", "127.0.0.1:1234")
    announce(tmp_path, "controller", "127.0.0.1:4321")
    assert resolve("127.0.0.1:0", tmp_path, "replay") == "127.0.0.1:1234"
    assert resolve("127.0.0.1:0", tmp_path, "controller") == "127.0.0.1:4321"


def test_the_services_of_a_run_are_not_found_by_a_copy_of_its_directory(tmp_path: Path) -> None:
    one, copy, moved = tmp_path / "one", tmp_path / "copy", tmp_path / "moved"
    one.mkdir()
    announce(one, "replay", "127.0.0.1:1")
    shutil.copytree(one, copy)
    one.rename(moved)
    assert resolve("127.0.0.1:0", moved, "replay") == "127.0.0.1:1"
    with pytest.raises(ServiceLost, match="has not announced"):
        resolve("127.0.0.1:0", copy, "replay")


@pytest.mark.parametrize("text", ["", "[]", "{}", "[1"])
def test_a_damaged_announcement_is_none(tmp_path: Path, text: str) -> None:
    announce(tmp_path, "replay", "127.0.0.1:1")
    (tmp_path / "services" / "replay.json").write_text(text)
    with pytest.raises(ServiceLost, match="has not announced"):
        resolve("127.0.0.1:0", tmp_path, "replay")


def test_before_and_after_its_announcement_a_service_is_lost(tmp_path: Path) -> None:
    with pytest.raises(ServiceLost, match="has not announced its address"):
        resolve("127.0.0.1:0", tmp_path, "replay")
    announce(tmp_path, "replay", "127.0.0.1:1")
    withdraw(tmp_path, "replay")
    withdraw(tmp_path, "replay")
    with pytest.raises(ServiceLost, match="the replay has not announced"):
        resolve("127.0.0.1:0", tmp_path, "replay")


def test_port_0_needs_a_run_directory() -> None:
    announce(None, "replay", "127.0.0.1:1")
    withdraw(None, "replay")
    with pytest.raises(ConfigError, match=r"replay\.address is 127\.0\.0\.1:0: give --run-dir"):
        resolve("127.0.0.1:0", None, "replay")
