"""Configuration: order of layers, and errors with key, value and origin."""

from pathlib import Path
from typing import Any

import pytest

from fullrank.common.errors import ConfigError
from fullrank.config import (
    PluginSettings,
    RunConfig,
    load,
)
from fullrank.config import plugins as module
from fullrank.environments.base import Environment, make_environment


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "run.toml"
    path.write_text(text)
    return path


def test_the_promised_defaults() -> None:
    config = RunConfig()
    assert (config.environment.name, config.environment.agents) == ("cooperative_navigation", 3)
    assert (config.code.name, config.algorithm.name) == ("cyclic", "maddpg")
    assert (config.environment.copies, config.collect.steps, config.collect.lag) == (200, 1, 0)
    assert (config.collect.warmup, config.iterations) == (25_600, 12_000)


@pytest.mark.parametrize("name", ["mpe2.simple_spread_v3:parallel_env", "pettingzoo", "gymnasium"])
def test_environments_of_separate_copies_have_few_of_them_and_of_rows_by_default(name: str) -> None:
    config = load(environ={}, overrides=[f"environment.name={name}"]).config
    assert (config.environment.copies, config.collect.steps) == (4, 25)
    assert (config.collect.warmup, config.collect.warmup_copies) == (2_000, 8)
    given = ["environment.copies=7", "collect.steps=3"]
    config = load(environ={}, overrides=[f"environment.name={name}", *given]).config
    assert (config.environment.copies, config.collect.steps) == (7, 3)


@pytest.mark.parametrize(("environment", "copies"), [("smac_lite", 8), ("gymnasium", 4)])
def test_algorithms_of_whole_episodes_have_numbers_of_their_own_by_default(
    environment: str, copies: int
) -> None:
    named = [f"environment.name={environment}", "algorithm.name=qmix"]
    config = load(environ={}, overrides=named).config
    assert (config.environment.copies, config.iterations) == (copies, 2_000)
    assert (config.collect.warmup, config.collect.warmup_copies) == (2_000, 8)
    given = ["environment.copies=7", "collect.warmup=3", "iterations=5"]
    config = load(environ={}, overrides=named + given).config
    assert (config.environment.copies, config.collect.warmup, config.iterations) == (7, 3, 5)


def test_later_layers_win_and_say_so(tmp_path: Path) -> None:
    path = written(tmp_path, "seed = 1\niterations = 1\nlearners = 11\n[collect]\nsteps = 1\n")
    resolved = load(
        path,
        environ={"FULLRANK__ITERATIONS": "2", "FULLRANK__COLLECT__STEPS": "2", "SEED": "7"},
        overrides=["collect.steps=3", "learners=3"],
        options={"learners": 4, "seed": None},
    )
    config = resolved.config
    assert (config.seed, config.iterations, config.collect.steps, config.learners) == (1, 2, 3, 4)
    assert {key: resolved.origin[key] for key in ("seed", "iterations", "learners")} == {
        "seed": str(path),
        "iterations": "environment FULLRANK__ITERATIONS",
        "learners": "option",
    }
    assert resolved.origin["collect.steps"] == "--set"
    assert resolved.origin["collect.warmup"] == "default"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2", 2),
        ("0.5", 0.5),
        ("true", True),
        ("[1, 2]", [1, 2]),
        ('"2"', "2"),
        ("plain words", "plain words"),
        ("1979-05-27", "1979-05-27"),
        ("10:30:00", "10:30:00"),
        ("''", ""),
        ("1\nseed = 5", "1\nseed = 5"),
        ("a=b", "a=b"),
    ],
)
def test_texts_are_toml_where_they_can_be(text: str, value: object) -> None:
    by_set = load(overrides=[f"code.x={text}"]).config.code.params
    by_environment = load(environ={"FULLRANK__CODE__X": text}).config.code.params
    assert by_set == by_environment == {"x": value}


@pytest.mark.parametrize("text", ["7", "1e3", "true", "007", "2024-11-28", "'7'"])
def test_a_setting_that_is_text_is_read_as_it_stands(text: str) -> None:
    assert load(environ={"FULLRANK__NAME": text}).config.name == text.strip("'")
    assert load(overrides=[f"name={text}"]).config.name == text.strip("'")


def test_an_empty_variable_is_not_given_and_an_empty_text_is(tmp_path: Path) -> None:
    path = written(tmp_path, 'learners = 2\n[store]\nurl = "s3://bucket/run"\n')
    empty = load(path, environ={"FULLRANK__LEARNERS": "", "FULLRANK__STORE__URL": ""})
    assert (empty.config.learners, empty.config.store.url) == (2, "s3://bucket/run")
    assert empty.origin["store.url"] == str(path)
    assert load(path, environ={"FULLRANK__STORE__URL": "''"}).config.store.url == ""
    assert load(path, overrides=["store.url="]).config.store.url == ""


def test_parameters_of_plug_ins_may_be_tables() -> None:
    overrides = ["environment.arguments.size=3", "environment.arguments.name=x"]
    resolved = load(environ={"FULLRANK__ENVIRONMENT__ARGUMENTS": "{size = 2}"}, overrides=overrides)
    assert resolved.config.environment.params == {"arguments": {"size": 3, "name": "x"}}
    assert resolved.origin["environment.arguments.size"] == "--set"


def test_a_value_replaces_a_table_of_a_lower_layer_and_the_other_way_round() -> None:
    inner, outer = "environment.a.b", "environment.a"
    for lower, upper, expected in ((inner, outer, {"a": 1}), (outer, inner, {"a": {"b": 1}})):
        environ = {f"FULLRANK__{lower.replace('.', '__').upper()}": "0"}
        resolved = load(environ=environ, overrides=[f"{upper}=1"])
        assert resolved.config.environment.params == expected


def test_naming_another_class_drops_the_old_ones_parameters(tmp_path: Path) -> None:
    path = written(tmp_path, '[code]\nname = "cyclic"\ntolerance = 2\n[environment]\nagents = 5\n')
    assert load(path, options={"code.name": "uncoded"}).config.code == PluginSettings(
        name="uncoded"
    )
    kept = load(path, options={"code.name": "cyclic"}).config
    assert kept.code == PluginSettings(name="cyclic", params={"tolerance": 2})
    moved = load(path, overrides=["environment.name=other"]).config
    assert (moved.environment.agents, moved.environment.name) == (5, "other")


def test_another_environment_has_its_own_number_of_agents() -> None:
    assert load(overrides=["environment.name=other"]).config.environment.agents == 0
    given = load(overrides=["environment.name=other", "environment.agents=4"]).config
    assert given.environment.agents == 4


def test_name_and_parameters_of_one_command_line_belong_together() -> None:
    resolved = load(overrides=["code.tolerance=2"], options={"code.name": "mds"})
    assert resolved.config.code == PluginSettings(name="mds", params={"tolerance": 2})


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("learnes=4", "unknown key 'learnes' in --set; did you mean 'learners'?"),
        ("zzz=4", "unknown key 'zzz' in --set; known: algorithm, audit, checkpoint"),
        (
            "controller.adress=a:1",
            "unknown key 'controller.adress' in --set; did you mean 'controller.address'?",
        ),
        ("seed.x=1", "unknown key 'seed.x' in --set; 'seed' is one value"),
        ("ranks.backend=gloo", "ranks.backend in --set is no setting any more: it follows from c"),
        ("ranks.exact=false", "ranks.exact in --set is no setting any more: gradients are a"),
        ("code=mds", "'code' in --set is a table; set its keys: code.name"),
        ("seed=x", "seed = 'x' in --set: must be a valid integer"),
        ("seed=-1", "seed = -1 in --set: must be greater than or equal to 0"),
        ("seed=9223372036854775808", "seed = 9223372036854775808 in --set: must be less than"),
        (
            "environment.copies=8589934592",
            "environment.copies = 8589934592 in --set: must be less than or equal to 2147483647",
        ),
        (
            "collect.warmup_copies=8589934592",
            "collect.warmup_copies = 8589934592 in --set: must be less than or equal to 2147483647",
        ),
        (
            "compute.threads=8589934592",
            "compute.threads = 8589934592 in --set: must be less than or equal to 4096",
        ),
        ("iterations=0", "iterations = 0 in --set: must be greater than or equal to 1"),
        ("iterations=2.5", "iterations = 2.5 in --set: must be a valid integer"),
        ("collect.lag=-1", "collect.lag = -1 in --set: must be greater than or equal to 0"),
        ("collect.lag=2", "collect.lag = 2 needs collect.mode = 'keyed'"),
        ("metrics.sinks=1", "metrics.sinks = 1 in --set: must be a valid array"),
        ("controller.undecodable=x", "controller.undecodable = 'x' in --set: must be 'wait', 're"),
        ("controller.deadline_s=0", "controller.deadline_s = 0 in --set: must be greater than 0"),
        ("controller.deadline_s=inf", "controller.deadline_s = inf in --set: must be a finite nu"),
        ("replay.address=nowhere", "replay.address = 'nowhere' in --set: must be host:port"),
        ("replay.address=:80", "replay.address = ':80' in --set: must be host:port"),
        ("replay.address=a:70000", "replay.address = 'a:70000' in --set: must be host:port"),
        ("metrics.sinks=[5]", "metrics.sinks.0 = [5] in --set: must be a valid string"),
        ("seed", "--set seed: expected key=value, for example code.tolerance=2"),
        (
            "controller.lost_after_s=1",
            "controller.lost_after_s = 1.0 must exceed controller.heartbeat_s = 2.0",
        ),
        ("replay.capacity=5", "replay.capacity = 5 cannot hold the warm-up of collect.warmup ="),
    ],
)
def test_an_impossible_setting_gets_one_clear_line(override: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(overrides=[override])
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_an_error_names_the_layer_that_made_it(tmp_path: Path) -> None:
    path = written(tmp_path, 'seed = "one"\n')
    with pytest.raises(ConfigError, match=r"seed = 'one' in .*run\.toml: must be"):
        load(path)
    with pytest.raises(ConfigError, match="seed = 'two' in environment FULLRANK__SEED: must be"):
        load(path, environ={"FULLRANK__SEED": "two"})
    with pytest.raises(ConfigError, match="unknown key 'lerners' in environment FULLRANK__LERNERS"):
        load(environ={"FULLRANK__LERNERS": "2"})


def test_an_impossible_value_that_a_later_layer_mends_is_no_error(tmp_path: Path) -> None:
    assert load(written(tmp_path, 'seed = "one"\n'), overrides=["seed=1"]).config.seed == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"seed = x\n", r"run\.toml is not valid TOML: .*line 1"),
        (b"seed = 1\nseed = 2\n", r"run\.toml is not valid TOML: .*line 2"),
        (b"\xff\xfe", r"run\.toml is not UTF-8 text"),
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "run.toml").write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        load(tmp_path / "run.toml")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*gone.toml: No such"):
        load(tmp_path / "gone.toml")


@pytest.mark.parametrize("sizes", [(), ("learners=6",)])
def test_an_environment_that_counts_its_agents_is_made_once(
    sizes: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    environments = []

    def make(name: str, **settings: Any) -> Environment:
        environments.append(make_environment(name, **settings))
        return environments[-1]

    monkeypatch.setattr(module, "make_environment", make)
    factory = "tests.unit.environments.test_pettingzoo:Counting"
    asked = load(overrides=[f"environment.name={factory}", *sizes]).check().with_environment()
    assert asked.agents() == asked.config.environment.agents == len(asked.problem().units) == 3
    assert len(environments) == 1
