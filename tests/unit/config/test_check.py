"""``Resolved.check``: parameters of plug-ins against the registered classes."""

from dataclasses import dataclass
from typing import Literal

import pytest

from fullrank.common.errors import ConfigError
from fullrank.common.registry import Registry
from fullrank.config import (
    Resolved,
    from_toml,
    load,
    to_toml,
)
from fullrank.config import plugins as module


@dataclass(frozen=True, kw_only=True)
class Sized:
    """A plug-in for these tests."""

    size: int = 4
    rate: float = 0.5
    widths: tuple[int, ...] = (64, 64)
    label: str | None = None
    reach: float | Literal["all"] | None = None

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
            ("code.reach=far", "code.reach = 'far' in --set: must be a valid number or 'all'"),
            ("code.size=-1", "sized: size must not be negative, got -1"),
            ("code.name=size", "unknown thing 'size'; did you mean 'sized'?"),
            ("stragglers.name=fixedk", "unknown delay model 'fixedk'; did you mean 'fixed_k'?"),
        ],
    )
    def test_a_wrong_parameter_gets_one_clear_line(self, override: str, message: str) -> None:
        with pytest.raises(ConfigError) as caught:
            checked(override)
        assert str(caught.value) == message

    @pytest.mark.parametrize("name", ["fixed_k", "slow_learners"])
    def test_more_stragglers_than_learners_are_refused(self, name: str) -> None:
        with pytest.raises(ConfigError, match="k = 5 stragglers need at least 5 learners"):
            checked(f"stragglers.name={name}", "stragglers.k=5")

    def test_arguments_of_a_factory_are_left_to_it(self) -> None:
        resolved = checked("environment.name=some.module:make", "environment.size=x")
        assert resolved.config.environment.params == {"size": "x"}
