"""The number of learners follows the code, also a planned one, and the number of agents."""

import warnings
from dataclasses import replace

import numpy as np
import pytest

from fullrank.codes import codes, make_code
from fullrank.codes.families.fractional import Fractional
from fullrank.codes.targets import each_unit, sum_of_units, sums_of_groups
from fullrank.common.errors import CodeError, ConfigError
from fullrank.config import (
    load,
)
from fullrank.config.code import code_of


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


def test_learners_follow_the_units_of_an_algorithm_that_divides_its_work_otherwise() -> None:
    battle = ["environment.name=smac_lite", "algorithm.name=qmix"]
    resolved = load(overrides=battle).check()
    assert resolved.config.learners == 5
    assert resolved.origin["learners"] == "default: cyclic with 4 units"
    assert load(overrides=[*battle, "algorithm.micro_batches=6"]).size().config.learners == 7


def test_learners_follow_the_micro_batches_of_agents() -> None:
    few = load(overrides=["algorithm.micro_batches=2", "environment.agents=3"]).size()
    assert few.origin["learners"] == "default: cyclic with 6 units"
    units, target = few.units()
    assert units == 6
    assert target is not None
    assert np.array_equal(target, sums_of_groups(3, 2))


@pytest.mark.parametrize(
    ("parts", "tolerance", "learners"), [(4, 1, 4), (5, 1, 4), (6, 2, 6), (2, 3, 4), (1, 1, 2)]
)
def test_for_a_sum_whole_repetition_needs_no_more_learners_than_units(
    parts: int, tolerance: int, learners: int
) -> None:
    code = ("code.name=fractional", f"code.tolerance={tolerance}")
    units = (f"algorithm.micro_batches={parts}",)
    sized = load(overrides=["algorithm.name=qmix", *code, *units]).size()
    assert sized.config.learners == learners
    target = sum_of_units(parts)
    assert code_of(sized.config, units=parts, target=target).tolerance >= tolerance
    assert make_code("fractional", rows=12, units=6, target=sums_of_groups(3, 2)).tolerance == 1
    assert Fractional().rows_to_recover(sums_of_groups(3, 2)) == 6


def test_the_planner_begins_with_few_learners_where_a_sum_is_sought() -> None:
    config = load(overrides=["code.name=auto", "learners=2"]).config
    code = code_of(config, units=4, target=sum_of_units(4))
    assert (code.name, code.tolerance) == ("fractional", 1)
    several = code_of(config, units=4, target=each_unit(4))
    assert (several.name, several.tolerance, several.rows_per_learner) == ("cyclic", 1, 4)
    many = code_of(replace(config, learners=5), units=4, target=sum_of_units(4))
    assert many.name == "cyclic"


def test_learners_follow_the_number_of_agents_of_an_environment_that_has_its_own() -> None:
    factory = "tests.unit.environments.test_pettingzoo:Counting"
    resolved = load(overrides=[f"environment.name={factory}", "code.tolerance=2"]).size()
    assert (resolved.config.learners, resolved.config.environment.agents) == (5, 0)
    assert resolved.origin["learners"] == "default: cyclic with 3 agents"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ("learners=2", "environment.agents=8", "code.tolerance=2"),
            "code.tolerance = 2 lost learners needs more than 2 learners: use --learners 3 or a "
            "lower code.tolerance",
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


BATTLE = ("environment.name=smac_lite", "algorithm.name=qmix")


@pytest.mark.parametrize(
    ("tolerance", "overrides"),
    [
        (2**16 - 2, ()),
        (2**63 - 1, ()),
        (2**70, ("code.name=fractional",)),
        (2**70, ("code.name=fractional", *BATTLE)),
    ],
)
def test_a_tolerance_beyond_the_most_learners_is_refused(
    tolerance: int, overrides: tuple[str, ...]
) -> None:
    """Before a code is built, which would not fit into memory."""
    layers = load(overrides=[*overrides, f"code.tolerance={tolerance}"])
    with pytest.raises(
        ConfigError, match=f"code.tolerance = {tolerance} needs more than the 65536"
    ):
        layers.size()


AUTO = ("code.name=auto", "environment.agents=8")


def test_auto_is_chosen_like_a_code_and_is_none() -> None:
    resolved = load(overrides=AUTO).size()
    assert "auto" not in set(codes)
    assert resolved.config.code.params == {"margin": 0.05}
    assert resolved.origin["learners"] == "default: auto with 8 agents"
    code = code_of(resolved.config, units=8)
    assert (code.name, code.rows, code.tolerance) == ("cyclic", 9, 1)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("code.name=atuo",), "unknown code 'atuo'; did you mean 'auto'"),
        ((*AUTO, "code.margn=0.1"), "'auto' has no parameter 'margn'; did you mean 'margin'"),
        ((*AUTO, "code.margin=1.0"), "auto needs 0 <= margin < 1: 1.0"),
    ],
)
def test_impossible_settings_are_refused(overrides: tuple[str, ...], message: str) -> None:
    with pytest.raises((CodeError, ConfigError), match=message):
        load(overrides=overrides).size()


@pytest.mark.parametrize("learners", [1, 2, 4, 9])
def test_any_number_of_learners_begins_with_a_code_that_survives_a_loss_if_one_can(
    learners: int,
) -> None:
    config = load(overrides=[*AUTO, f"learners={learners}"]).size().config
    assert code_of(config, units=8).tolerance == min(1, learners - 1)
