"""Settings that name a resource of one machine do not come from elsewhere."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import pytest

from fullrank.common.errors import ConfigError, FullrankError
from fullrank.common.types import SettingReach
from fullrank.config import from_toml, load, read_config, to_toml
from fullrank.config.elsewhere import (
    compared,
    device_kind,
    from_elsewhere,
    is_own_run,
    reach_of,
    reaches,
    read_run,
    remember_run,
    require,
)
from fullrank.config.leaves import SECTIONS, TABLES

LOCAL = {
    "monitor.address": "10.0.0.9:5000",
    "controller.listen": "0.0.0.0:7",
    "tls.certificates": "/etc/theirs",
    "store.url": "s3://theirs/run",
    "metrics.sinks": ["wandb"],
    "compute.device": "cuda:3",
    "compute.threads": 64,
    "collectors.processes": False,
}


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def theirs(**options: Any) -> str:
    """The configuration of another, as a controller writes it."""
    return to_toml(load(options={**LOCAL, **options}).config)


def hints_of(table: str) -> dict[str, Any]:
    return get_type_hints(type(TABLES[table]), include_extras=True)


def test_every_setting_is_marked_local_or_portable() -> None:
    settings = {f"{table}.{name}" for table, names in SECTIONS.items() for name in names}
    assert set(reaches()) == settings | (TABLES.keys() - SECTIONS.keys())


def test_every_free_text_of_a_portable_table_has_a_mark_of_its_own() -> None:
    """A new path or address is local by its kind or its mark, not portable by oversight."""
    for table in SECTIONS:
        for name in SECTIONS[table]:
            hint = hints_of(table)[name]
            kind = get_args(hint)[0] if reach_of(hint) or hasattr(hint, "__metadata__") else hint
            free = kind is str or get_origin(kind) is tuple
            named = name in ("name", "fingerprint", "faults")
            marked = (
                reach_of(hint) is not None or reaches()[f"{table}.{name}"] is SettingReach.LOCAL
            )
            assert not free or named or marked, f"{table}.{name}"


@pytest.mark.parametrize("key", [*LOCAL, "ranks.count", "health.address", "controller.device"])
def test_paths_addresses_devices_and_processes_are_local(key: str) -> None:
    assert reaches()[key] is SettingReach.LOCAL


def test_local_settings_of_another_become_the_reader_s_own() -> None:
    own = load(options={"compute.threads": 2, "learner.domain": "here"}).config
    config, dropped = from_elsewhere(theirs(seed=5), own=own)
    assert config == replace(own, seed=5)
    assert dropped.keys() == LOCAL.keys() - {"collectors.processes"}
    assert dropped["monitor.address"] == "10.0.0.9:5000"


def test_a_configuration_without_local_settings_is_read_as_it_is() -> None:
    text = to_toml(load(options={"seed": 3, "code.name": "mds", "learners": 5}).config)
    assert from_elsewhere(text) == (from_toml(text), {})


def test_an_impossible_local_setting_of_another_is_not_even_read() -> None:
    assert from_elsewhere('[compute]\ndevice = 7\nthreads = "x"\n').config == load().config
    assert from_elsewhere("monitor.address.port = 7\n").config == load().config
    with pytest.raises(ConfigError):
        from_elsewhere("[audit]\nevery = -1\n")


def test_runs_are_told_apart_by_how_they_compute_and_not_by_where_they_are_kept() -> None:
    kept = {"name": "mine", "controller.device": "auto", "compute.device": "cuda:3"}
    places = {"monitor.address": "10.0.0.9:5000", "tls.certificates": "/certs"}
    mine = compared(load(options={**kept, **places, "store.url": "s3://bucket"}).config)
    assert mine == compared(load(options={"compute.device": "cuda:1"}).config)
    trace = {"stragglers.name": "trace", "stragglers.path": "mine.csv"}
    for own in ({"seed": 1}, {"ranks.count": 2}, {"compute.device": "cpu"}, trace):
        assert compared(load(options=own).config) != compared(load().config)


@pytest.mark.parametrize(
    ("theirs", "kind"), [("cuda:1", "cuda"), ("cpu", "cpu"), ("auto", "auto"), ("cuda", "cuda")]
)
def test_of_a_device_elsewhere_the_kind_is_known(theirs: str, kind: str) -> None:
    text = to_toml(load(options={"compute.device": theirs}).config)
    assert device_kind(from_elsewhere(text)) == kind


def test_a_trace_of_another_is_no_file_of_this_machine(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    trace = {"stragglers.name": "trace", "stragglers.path": str(tmp_path / "fifo")}
    text = to_toml(load(options=trace).config)
    config, dropped = from_elsewhere(text)
    assert config.stragglers.params == {}
    with pytest.raises(ConfigError, match=r"its stragglers\.path = /.*fifo names a resource of an"):
        require(dropped, "stragglers.path", origin="runs/theirs")
    own = load(options={"stragglers.name": "trace", "stragglers.path": "mine.csv"}).config
    assert from_elsewhere(text, own=own).config.stragglers.params == {"path": "mine.csv"}
    rows = load(overrides=["stragglers.name=trace", "stragglers.rows=[[0, 1, 0.5]]"]).config
    assert from_elsewhere(to_toml(rows)).config.stragglers == rows.stragglers


@pytest.fixture
def run(tmp_path: Path) -> Path:
    directory = tmp_path / "run"
    directory.mkdir()
    (directory / "config.toml").write_text(theirs())
    (directory / "run.json").write_text(json.dumps({"run": "1234"}))
    return directory


def test_a_run_that_this_user_has_started_is_read_whole(run: Path) -> None:
    assert read_config(run).monitor.address == "local"
    remember_run(run, "1234")
    assert read_config(run) == from_toml(theirs())


def test_a_copy_and_another_run_in_its_place_are_from_elsewhere(run: Path) -> None:
    remember_run(run, "1234")
    shutil.copytree(run, run.with_name("copy"))
    assert is_own_run(run)
    assert not is_own_run(run.with_name("copy"))
    (run / "run.json").write_text(json.dumps({"run": "5678"}))
    assert not is_own_run(run)


def test_a_run_is_its_user_s_before_a_controller_holds_it(run: Path) -> None:
    remember_run(run)
    assert not is_own_run(run)
    (run / "run.json").unlink()
    assert is_own_run(run)


def test_the_reader_s_variables_set_local_settings_of_a_run_from_elsewhere(run: Path) -> None:
    variables = {"FULLRANK__MONITOR__ADDRESS": "10.0.0.9:5000", "FULLRANK__SEED": "9"}
    config, dropped = read_run(run, variables)
    assert (config.monitor.address, config.seed) == ("10.0.0.9:5000", 0)
    assert "monitor.address" not in dropped


@pytest.mark.parametrize("name", ["config.toml", "run.json"])
def test_no_file_of_a_run_is_awaited(name: str, run: Path) -> None:
    remember_run(run, "1234")
    (run / name).unlink()
    os.mkfifo(run / name)
    if name == "run.json":
        assert not is_own_run(run)
    else:
        with pytest.raises(FullrankError, match="not a regular file"):
            read_config(run)


@pytest.mark.parametrize("path", ["/dev/zero", "fifo"])
def test_no_configuration_is_read_from_a_device_or_a_fifo(path: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(ConfigError, match="regular file"):
        load(tmp_path / path)
