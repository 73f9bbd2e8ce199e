"""Compose: controller and learners on a card, where Triton compiles."""

import re
from pathlib import Path
from typing import Any

import yaml

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"


def services() -> dict[str, Any]:
    """Services of the file, in which a list may replace another one."""
    text = (DEPLOY / "docker-compose.gpu.yml").read_text().replace("!override ", "")
    found: dict[str, Any] = yaml.safe_load(text)["services"]
    return found


def test_controller_and_learners_have_the_card_on_which_both_compute() -> None:
    assert list(services()) == ["controller", "learner"]
    for service in services().values():
        assert service["environment"] == {"FULLRANK__COMPUTE__DEVICE": "cuda"}
        (card,) = service["deploy"]["resources"]["reservations"]["devices"]
        assert card == {"driver": "nvidia", "device_ids": ["0"], "capabilities": ["gpu"]}


def test_images_for_cards_have_a_compiler_and_keep_what_it_made_where_it_may_be_executed() -> None:
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    stages = re.findall(r"^FROM (\S+) AS (\S+)\n((?:(?!FROM ).*\n)*)", dockerfile, re.MULTILINE)
    parents = {name: parent for parent, name, _ in stages}
    computing = {name: parents[name] for name in ("controller", "learner", "collector")}
    assert set(computing.values()) == {"computing-${TORCH}"}
    (commands,) = (commands for _, name, commands in stages if name == "computing-cuda")
    assert "install --yes --no-install-recommends gcc libc6-dev" in commands
    assert "ENV TRITON_CACHE_DIR=/tmp/" in commands
    assert all(service["tmpfs"] == ["/tmp:exec"] for service in services().values())
