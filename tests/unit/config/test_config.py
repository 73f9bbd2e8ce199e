"""Configuration: order of layers, errors with key, value and origin, and lossless TOML."""

import subprocess
import sys
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.codes import codes, make_code
from fullrank.common.errors import CodeError, ConfigError, VersionMismatch
from fullrank.common.registry import Registry
from fullrank.config import (
    PluginSettings,
    Resolved,
    RunConfig,
    as_tables,
    config_digest,
    from_toml,
    load,
    to_toml,
)
from fullrank.config import plugins as module
from fullrank.config.renames import RENAMED
from fullrank.wiring import code_of


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "run.toml"
    path.write_text(text)
    return path


def test_without_layers_everything_has_its_default() -> None:
    resolved = load()
    assert resolved.config == RunConfig()
    assert set(resolved.origin.values()) == {"default"}
    assert resolved.origin["controller.deadline_s"] == "default"


def test_the_promised_defaults() -> None:
    config = RunConfig()
    assert (config.environment.name, config.environment.agents) == ("cooperative_navigation", 3)
    assert (config.code.name, config.algorithm.name) == ("cyclic", "maddpg")
    assert (config.environment.copies, config.collect.steps, config.collect.lag) == (4, 25, 0)
    assert (config.collect.warmup, config.iterations) == (25_600, 2000)


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
        ("", ""),
        ("1\nseed = 5", "1\nseed = 5"),
        ("a=b", "a=b"),
    ],
)
def test_texts_are_toml_where_they_can_be(text: str, value: object) -> None:
    by_set = load(overrides=[f"code.x={text}"]).config.code.params
    by_environment = load(environ={"FULLRANK__CODE__X": text}).config.code.params
    assert by_set == by_environment == {"x": value}


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
        ("code=mds", "'code' in --set is a table; set its keys: code.name"),
        ("seed=x", "seed = 'x' in --set: must be a valid integer"),
        ("seed=-1", "seed = -1 in --set: must be greater than or equal to 0"),
        ("seed=9223372036854775808", "seed = 9223372036854775808 in --set: must be less than"),
        ("iterations=0", "iterations = 0 in --set: must be greater than or equal to 1"),
        ("iterations=2.5", "iterations = 2.5 in --set: must be a valid integer"),
        ("collect.lag=2", "collect.lag = 2 in --set: must be 0 or 1"),
        ("metrics.sinks=1", "metrics.sinks = 1 in --set: must be a valid array"),
        ("controller.undecodable=x", "controller.undecodable = 'x' in --set: must be 'wait', 're"),
        ("controller.deadline_s=0", "controller.deadline_s = 0 in --set: must be greater than 0"),
        ("controller.deadline_s=inf", "controller.deadline_s = inf in --set: must be a finite nu"),
        ("replay.address=nowhere", "replay.address = 'nowhere' in --set: must be host:port"),
        ("replay.address=:80", "replay.address = ':80' in --set: must be host:port"),
        ("replay.address=a:70000", "replay.address = 'a:70000' in --set: must be host:port"),
        ("code.name=5", "code.name = 5 in --set: must be a valid string"),
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
    with pytest.raises(ConfigError, match=r"cannot read the configuration .*gone.toml: No such"):
        load(tmp_path / "gone.toml")


VALUES = st.recursive(
    st.booleans() | st.integers(-(2**62), 2**62) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
PARAMS = st.dictionaries(st.text().filter(lambda key: key != "name"), VALUES, max_size=4)


@given(PARAMS, st.floats(0.001, 1e12), st.text())
def test_written_toml_reads_back_equal(
    params: dict[str, Any], deadline_s: float, name: str
) -> None:
    default = RunConfig()
    config = replace(
        default,
        code=PluginSettings(name=name, params=params),
        replay=replace(default.replay, deadline_s=deadline_s),
    )
    assert from_toml(to_toml(config)) == config


def test_the_written_tree_is_complete() -> None:
    text = to_toml(RunConfig())
    for key in ("seed = 0", "[metrics]", 'sinks = ["tensorboard"]', 'device = "auto"', "lag = 0"):
        assert key in text.splitlines()


def digest(*overrides: str) -> str:
    return config_digest(load(overrides=overrides).config)


@pytest.mark.parametrize(
    "override",
    ["seed=1", "environment.agents=4", "algorithm.batch_size=7", "collect.lag=1",
     "replay.capacity=30000", "replay.capacity_bytes=30000", "sampling.method=prioritised"],
)  # fmt: skip
def test_what_decides_the_committed_bits_decides_the_digest(override: str) -> None:
    assert digest(override) != digest()


@pytest.mark.parametrize(
    "override",
    ["code.name=mds", "learners=9", "stragglers.k=1", "replay.address=a:1", "iterations=9",
     "controller.deadline_s=5", "checkpoint.every=3"],
)  # fmt: skip
def test_what_leaves_the_committed_bits_alone_leaves_the_digest_alone(override: str) -> None:
    assert digest(override) == digest()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("algorithm.noise_limit", "algorithm.max_variance"),
        ("replay.sampler", "sampling.method"),
        ("replay.priority_gain", "sampling.priority_gain"),
        ("straggler.address", "sidecar.address"),
    ],
)
def test_a_renamed_setting_is_refused_with_its_new_name(old: str, new: str, tmp_path: Path) -> None:
    section, _, key = old.partition(".")
    path = written(tmp_path, f"[{section}]\n{key} = 1\n")
    variable = "FULLRANK__" + old.upper().replace(".", "__")
    for origin, layers in (
        (str(path), {"config_path": path}),
        ("--set", {"overrides": [f"{old}=1"]}),
        (f"environment {variable}", {"environ": {variable: "1"}}),
    ):
        with pytest.raises(ConfigError) as refused:
            load(**layers)
        expected = f"{old!r} in {origin} is called {new!r} now; rename it there"
        assert str(refused.value) == expected


def test_every_renamed_setting_exists() -> None:
    tables = as_tables(load(overrides=["algorithm.name=darl1n", "learners=9"]).check().config)
    for new in RENAMED.values():
        section, _, key = new.partition(".")
        assert not key or key in tables[section]


@pytest.mark.parametrize("version", ["2", '"1"', "0", "true"])
def test_a_configuration_of_another_format_is_refused(version: str, tmp_path: Path) -> None:
    text = to_toml(RunConfig()).replace("format = 1", f"format = {version}", 1)
    with pytest.raises(VersionMismatch, match=r"config.toml has format .*, .* up to 1"):
        from_toml(text)
    with pytest.raises(VersionMismatch, match=r"run.toml has format"):
        load(written(tmp_path, text))


def test_a_configuration_without_a_format_is_read() -> None:
    assert from_toml(to_toml(RunConfig()).replace("format = 1\n", "")) == RunConfig()


@pytest.mark.parametrize("agents", range(1, 13))
@pytest.mark.parametrize("name", list(codes))
def test_by_default_there_are_the_learners_that_the_code_needs(name: str, agents: int) -> None:
    chosen = [f"code.name={name}", f"environment.agents={agents}"]
    resolved = load(overrides=chosen).size()
    assert resolved.origin["learners"] == f"default: {name} with {agents} agents"
    with warnings.catch_warnings(action="ignore"):
        code = make_code(name, rows=resolved.config.learners, units=agents)
    assert code.rows >= agents
    sure = name not in ("uncoded", "ldgm", "random_sparse")  # the last two depend on the draw
    assert code.tolerance >= 1 or not sure


def test_learners_follow_the_tolerance_asked_for() -> None:
    overrides = ["environment.agents=8", "code.tolerance=3"]
    assert load(overrides=overrides).size().config.learners == 11
    given = load(overrides=[*overrides, "learners=15"]).size()
    assert (given.config.learners, given.origin["learners"]) == (15, "--set")


def test_learners_follow_the_number_of_agents_of_an_environment_that_has_its_own() -> None:
    factory = "tests.unit.environments.test_pettingzoo:Counting"
    resolved = load(overrides=[f"environment.name={factory}", "code.tolerance=2"]).size()
    assert (resolved.config.learners, resolved.config.environment.agents) == (5, 0)
    assert resolved.origin["learners"] == "default: cyclic with 3 agents"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ("learners=4", "environment.agents=8"),
            "cyclic needs learners >= agents + tolerance: 4 < 8 + 1; use --learners 9, fewer "
            "--agents, or a lower code.tolerance",
        ),
        (
            ("learners=4", "environment.agents=8", "code.name=mds"),
            "mds needs learners >= agents: 4 < 8; use --learners 9 or fewer --agents",
        ),
        (
            ("learners=9", "environment.agents=8", "code.name=ldpc"),
            "ldpc has no code with rows = 9, units = 8; for 9 rows there are (M=6, w=3, gamma=1), "
            "(M=4, w=3, gamma=2), (M=2, w=3, gamma=3); each learner has a row: use --learners 10",
        ),
    ],
)
def test_impossible_sizes_are_refused_with_the_way_out(
    overrides: tuple[str, ...], message: str
) -> None:
    config = load(overrides=overrides).size().config
    with pytest.raises(CodeError) as refused:
        code_of(config, units=8)
    assert str(refused.value) == message


@dataclass(frozen=True, kw_only=True)
class Sized:
    """A plug-in for these tests."""

    size: int = 4
    rate: float = 0.5
    widths: tuple[int, ...] = (64, 64)
    label: str | None = None

    def __post_init__(self) -> None:
        if self.size < 0:
            raise ConfigError(f"sized: size must not be negative, got {self.size}")


@pytest.fixture
def sized(monkeypatch: pytest.MonkeyPatch) -> None:
    """Registries with ``sized`` alone, and the real delay models."""
    registry: Registry[Sized] = Registry("thing", "fullrank.common.errors")
    registry.register("sized")(Sized)
    tables = {"code": registry, "algorithm": registry, "environment": registry}
    monkeypatch.setattr(module, "_REGISTRIES", dict(module._REGISTRIES) | tables)


def checked(*overrides: str) -> Resolved:
    names = [f"{table}.name=sized" for table in ("algorithm", "environment", "code")]
    return load(overrides=["learners=4", *names, *overrides]).check()


@pytest.mark.usefixtures("sized")
class TestCheck:
    """``Resolved.check`` against the registered classes."""

    def test_parameters_are_completed_with_defaults(self) -> None:
        resolved = checked("code.size=2")
        expected = {"size": 2, "rate": 0.5, "widths": [64, 64]}
        assert resolved.config.code.params == expected
        assert (resolved.origin["code.size"], resolved.origin["code.rate"]) == ("--set", "default")

    def test_a_completed_tree_is_stable(self) -> None:
        config = checked("algorithm.widths=[32]", "algorithm.rate=1").config
        assert from_toml(to_toml(config)) == config
        assert load(overrides=()).config != config
        assert Resolved(config=config, origin={}).check().config == config

    @pytest.mark.parametrize(
        ("override", "message"),
        [
            ("code.siz=2", "thing 'sized' has no parameter 'siz'; did you mean 'size'?"),
            ("code.size=2.5", "code.size = 2.5 in --set: must be a valid integer"),
            ("code.widths=3", "code.widths = 3 in --set: must be a valid array"),
            ("code.size=-1", "sized: size must not be negative, got -1"),
            ("code.name=size", "unknown thing 'size'; did you mean 'sized'?"),
            ("stragglers.name=fixedk", "unknown delay model 'fixedk'; did you mean 'fixed_k'?"),
        ],
    )
    def test_a_wrong_parameter_gets_one_clear_line(self, override: str, message: str) -> None:
        with pytest.raises(ConfigError) as caught:
            checked(override)
        assert str(caught.value) == message

    def test_more_stragglers_than_learners_are_refused(self) -> None:
        with pytest.raises(ConfigError, match="k = 5 stragglers need at least 5 learners"):
            checked("stragglers.name=fixed_k", "stragglers.k=5")

    def test_arguments_of_a_factory_are_left_to_it(self) -> None:
        resolved = checked("environment.name=some.module:make", "environment.size=x")
        assert resolved.config.environment.params == {"size": "x"}


def test_reading_a_configuration_does_not_import_torch() -> None:
    code = "import sys; from fullrank.config import load; load(); print('torch' in sys.modules)"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert other.stdout.strip() == "False"
