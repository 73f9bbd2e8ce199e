"""Contexts built before the fork: equal to those that a learner builds for its run."""

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from fullrank.common.errors import ConfigError
from fullrank.config import from_toml, load, to_toml
from fullrank.config.tree import PluginSettings
from fullrank.net.codec import encode_environment
from fullrank.v1 import controller_pb2 as pb
from fullrank.wiring.training import training_of
from fullrank_learner.run_context import HostPlace, LearnerContext, prepare

SMALL = ("algorithm.batch_size=8", "algorithm.hidden=4", "compute.device=cpu", "learners=4")


def welcome_of(*settings: str) -> pb.Welcome:
    """The Welcome of a run with these settings, as its controller writes it."""
    config = load(overrides=[*SMALL, *settings]).check().config
    training = training_of(config)
    return pb.Welcome(
        run="demo",
        term=1,
        configuration=to_toml(config),
        **encode_environment(training.environment),
    )


def test_a_prepared_context_equals_the_one_built_for_the_run() -> None:
    prepared, built = prepare(load(overrides=SMALL)), LearnerContext(welcome_of())
    assert prepared is not None
    assert prepared.fits(welcome_of())
    assert prepared.probe == built.probe
    assert prepared.algorithm.gradients.fingerprint() == built.algorithm.gradients.fingerprint()


@pytest.mark.parametrize("other", ["seed=1", "environment.agents=4"])
def test_a_prepared_context_does_not_fit_another_configuration(other: str) -> None:
    prepared = prepare(load(overrides=SMALL))
    assert prepared is not None
    assert not prepared.fits(welcome_of(other))


def test_a_prepared_context_serves_no_run_until_it_is_welcomed() -> None:
    prepared = prepare(load(overrides=SMALL))
    assert prepared is not None
    assert not prepared.serves(welcome_of())
    assert LearnerContext(welcome_of()).serves(welcome_of())


@pytest.mark.parametrize(
    "setting",
    ["compute.threads=2", "environment.name=pettingzoo", "algorithm.hidden=0"],
)
def test_nothing_is_prepared_that_a_fork_would_break_or_the_controller_refuses(
    setting: str,
) -> None:
    assert prepare(load(overrides=[*SMALL, setting])) is None


@pytest.mark.parametrize("environment", ["never_imported:make", "pettingzoo", "gymnasium"])
def test_a_learner_imports_no_environment_that_a_controller_names(
    environment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sizes come with the Welcome; nothing else of such an environment is needed."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "never_imported.py").write_text("raise AssertionError('it was imported')")
    welcome = welcome_of()
    config = from_toml(welcome.configuration)
    arguments = (
        {} if ":" in environment else {"factory": "never_imported:make", "id": "never_imported:X"}
    )
    theirs = replace(config.environment, name=environment, params=arguments)
    welcome.configuration = to_toml(replace(config, environment=theirs))
    assert LearnerContext(welcome).probe == LearnerContext(welcome_of()).probe
    neighbours = replace(config.algorithm, name="darl1n", params={})
    welcome.configuration = to_toml(replace(config, environment=theirs, algorithm=neighbours))
    with pytest.raises(ConfigError):
        LearnerContext(welcome)
    assert "never_imported" not in sys.modules


@pytest.mark.parametrize("path", ["/dev/zero", "fifo"])
def test_a_learner_opens_no_file_that_a_controller_names(path: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    welcome, theirs = welcome_of(), str(tmp_path / path)
    config = from_toml(welcome.configuration)
    trace = PluginSettings(name="trace", params={"path": theirs})
    welcome.configuration = to_toml(replace(config, stragglers=trace))
    with pytest.raises(ConfigError, match=r"the controller's .* its stragglers\.path = "):
        LearnerContext(welcome)
    (tmp_path / "mine.csv").write_text("iteration,learner,delay_s\n0,1,0.5\n")
    mine = PluginSettings(name="trace", params={"path": str(tmp_path / "mine.csv")})
    place = HostPlace(own=replace(config, stragglers=mine))
    with pytest.raises(ConfigError, match=r"its stragglers\.path = "):
        LearnerContext(welcome, place=place)
    welcome.configuration = to_toml(replace(config, stragglers=mine))
    assert LearnerContext(welcome, place=place).lateness(0, 1, time_s=0.0).delay_s == 0.5


def test_a_learner_computes_on_its_own_device_of_the_run_s_kind() -> None:
    welcome = welcome_of()
    config = from_toml(welcome.configuration)
    compute = replace(config.compute, threads=3)
    welcome.configuration = to_toml(replace(config, compute=compute))
    context = LearnerContext(welcome)
    assert context.config.compute.device == "cpu"
    assert context.config.compute.threads == 1


def test_replica_j_has_its_entry_of_a_list_of_devices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fullrank_learner.run_context.visible", lambda: 4)
    monkeypatch.setattr("fullrank.algorithms.devices.lack_of_kernels", str)
    listed = "cuda:3,cuda:0,cuda:1"
    places = [HostPlace(replica=replica) for replica in range(4)]
    own = [place.device_of(listed, accelerated=False) for place in places]
    assert own == ["cuda:3", "cuda:0", "cuda:1", "cuda:3"]
    alone = HostPlace(replica=1, device="cuda:2")
    assert alone.device_of(listed, accelerated=False) == "cuda:2"


def test_a_learner_with_auto_computes_on_the_cpu_where_no_device_was_measured_to_be_quicker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fullrank_learner.run_context.visible", lambda: 4)
    monkeypatch.setattr("fullrank.algorithms.devices.lack_of_kernels", str)
    welcome = welcome_of("algorithm.name=qmix", "environment.name=two_step_game")
    config = from_toml(welcome.configuration)
    automatic = replace(config, compute=replace(config.compute, device="auto"))
    welcome.configuration = to_toml(automatic)
    assert LearnerContext(welcome).config.compute.device == "cpu"
    assert HostPlace(replica=1).device_of("auto", accelerated=True) == "cuda:1"
