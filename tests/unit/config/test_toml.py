"""Written configurations: lossless TOML, formats, and the digest of a run."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.common.errors import VersionMismatch
from fullrank.config import PluginSettings, RunConfig, from_toml, load, to_toml
from fullrank.config.toml import config_digest

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


@pytest.mark.parametrize("version", ["2", '"1"', "0", "true"])
def test_a_configuration_of_another_format_is_refused(version: str, tmp_path: Path) -> None:
    text = to_toml(RunConfig()).replace("format = 1", f"format = {version}", 1)
    path = tmp_path / "run.toml"
    path.write_text(text)
    with pytest.raises(VersionMismatch, match=r"config.toml has format .*, .* up to 1"):
        from_toml(text)
    with pytest.raises(VersionMismatch, match=r"run.toml has format"):
        load(path)


def test_a_configuration_without_a_format_is_read() -> None:
    assert from_toml(to_toml(RunConfig()).replace("format = 1\n", "")) == RunConfig()
