"""``code.name = "auto"`` is a setting of the configuration, not a registered code."""

import pytest

from fullrank.codes import codes
from fullrank.common.errors import CodeError, ConfigError
from fullrank.config import load
from fullrank.wiring import code_of

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
