"""The Compose file: its services end with their run, and are restarted until then."""

from pathlib import Path
from typing import Any

import pytest
import yaml

FILE = Path(__file__).resolve().parents[3] / "deploy/docker-compose.yml"


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    content: dict[str, dict[str, Any]] = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    return content["services"]


@pytest.mark.parametrize("name", ["controller", "standby", "replay", "learner", "collector"])
def test_a_service_of_a_run_ends_with_it_and_is_restarted_without_limit_until_then(
    services: dict[str, Any], name: str
) -> None:
    assert services[name]["restart"] == "on-failure"
    assert services[name]["command"][0] == "serve"
    assert "--until-finished" in services[name]["command"]
