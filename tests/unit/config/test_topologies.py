"""``--topology``: settings by the name of a published system."""

from pathlib import Path

import pytest

from fullrank.common.errors import ConfigError
from fullrank.config import load
from fullrank.config.topologies import TOPOLOGIES

CONFIGURATIONS = Path(__file__).parents[3] / "deploy" / "config"


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_every_topology_is_a_configuration_that_names_its_origin(name: str) -> None:
    resolved = load(topology=name).check()
    settings = {**TOPOLOGIES[name].fixed, **TOPOLOGIES[name].sizes}
    assert {key: resolved.origin[key] for key in settings} == dict.fromkeys(
        settings, f"--topology {name}"
    )


@pytest.mark.parametrize("name", ["awl", "cmarl"])
def test_a_deployment_has_the_settings_of_its_topology(name: str) -> None:
    deployed = load(CONFIGURATIONS / name / "run.toml").check().config
    plugins = {"environment.name": "smac_lite", "algorithm.name": "qmix"}
    topology = load(options=plugins, topology=name).check().config
    settings = {**TOPOLOGIES[name].fixed, **TOPOLOGIES[name].sizes}
    for table in {key.partition(".")[0] for key in settings}:
        assert getattr(deployed, table) == getattr(topology, table)


def test_sizes_may_be_changed_by_any_layer_above(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text("[environment]\ncopies = 6\n")
    config = load(path, overrides=["collectors.count=2"], topology="awl").config
    assert (config.environment.copies, config.collectors.count) == (6, 2)


def test_what_a_topology_means_may_be_said_again() -> None:
    assert load(overrides=["collect.mode=free"], topology="awl").config.collect.mode == "free"


@pytest.mark.parametrize(
    ("name", "override", "said"),
    [
        ("awl", "collect.mode=keyed", "collect.mode = 'keyed' in --set contradicts --topology awl"),
        ("aw", "collect.lag=1", "collect.lag = 1 in --set contradicts --topology aw"),
        ("episode", "collectors.count=2", "collectors.count = 2 in --set contradicts"),
        ("episode", "environment.copies=8", "environment.copies = 8 in --set contradicts"),
        ("awl", "collectors.count=0", "needs collectors"),
    ],
)
def test_a_contradiction_is_refused_in_one_line(name: str, override: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load(overrides=[override], topology=name)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("collect.mode=keyed", "set collect.mode = 'free', not 'keyed'"),
        ("algorithm.name=maddpg", "which maddpg does not: use algorithm.name = 'qmix', 'qplex'"),
        ("algorithm.name=pqn", "which pqn does not: use algorithm.name = 'qmix', 'qplex'"),
        ("containers.low=20.0", "containers.low = 20.0 must be below containers.high = 20.0"),
    ],
)
def test_containers_that_cannot_learn_are_refused_in_one_line(override: str, said: str) -> None:
    free = ["collect.mode=free", "collectors.count=2", "collectors.containers=true"]
    with pytest.raises(ConfigError) as refused:
        load(overrides=[*free, "algorithm.name=qmix", override])
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean 'awl'"):
        load(topology="awll")
