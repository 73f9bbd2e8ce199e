"""A lost machine takes along what its controller kept, and nothing else."""

from pathlib import Path

import pytest
from tests.faultlab.controller_machine import ControllerMachine

from fullrank.common.errors import ServiceLost
from fullrank.host.run_directory import announce

OTHERS = {"config.toml", "history", "logs", "machines", "replay", "services"}


def test_the_loss_of_a_machine_leaves_the_files_of_other_services(tmp_path: Path) -> None:
    machine = ControllerMachine(tmp_path)
    for name in ("history", "replay", "logs", "journal", "checkpoints"):
        (tmp_path / name).mkdir()
    for name in ("config.toml", "run.json", "metrics.jsonl", "audit.key"):
        (tmp_path / name).touch()
    announce(tmp_path, "controller", "127.0.0.1:1")
    successor = machine.another()
    assert machine.address() == "127.0.0.1:1"
    machine.lose(successor)
    assert {path.name for path in tmp_path.iterdir()} == OTHERS
    with pytest.raises(ServiceLost, match="has not announced"):
        machine.address()
    announce(successor, "controller", "127.0.0.1:2")
    assert machine.address() == "127.0.0.1:2"


def test_a_finished_run_is_gathered_where_it_began(tmp_path: Path) -> None:
    machine = ControllerMachine(tmp_path)
    successor = machine.another()
    machine.lose(successor)
    (successor / "run.json").write_text("later")
    (successor / "history" / "controller.jsonl").touch()
    machine.gather()
    assert machine.directory == tmp_path
    assert (tmp_path / "run.json").read_text() == "later"
    assert (tmp_path / "history" / "controller.jsonl").exists()
