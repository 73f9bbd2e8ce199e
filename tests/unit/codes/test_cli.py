"""``fullrank codes``: its output, and refusals in one line."""

import json

import pytest
from typer.testing import CliRunner

from fullrank.cli.codes import app
from fullrank.common.errors import ConfigError
from fullrank.config.auto_code import code_choices

RUN = CliRunner()


def output(*words: str) -> str:
    result = RUN.invoke(app, list(words), catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_list_names_every_code_with_its_parameters() -> None:
    listed = {family["name"]: family for family in json.loads(output("list", "--json"))}
    assert set(listed) == set(code_choices)
    assert listed["cyclic"]["parameters"] == {"tolerance": 1}
    assert listed["mds"]["summary"].startswith("Maximum distance separable")
    text = output("list")
    assert all(name in text for name in code_choices)


def test_show_prints_matrix_load_and_tolerance() -> None:
    sizes = ("cyclic", "--learners", "4", "--units", "3")
    shown = json.loads(output("show", *sizes, "--json"))
    assert (shown["rows"], shown["units"], shown["tolerance"]) == (4, 3, 1)
    assert shown["certificate"] == "exhaustive"
    assert [len(row) for row in shown["matrix"]] == [3] * 4
    assert shown["load"] == [1, 2, 2, 1]
    assert "tolerance 1 (exhaustive): any 1 of 4 learners" in output("show", *sizes)


def test_check_gives_probability_and_conditions_for_every_number_of_losses() -> None:
    checked = json.loads(output("check", "replication", "--json"))
    assert [row["lost"] for row in checked["losses"]] == list(range(8))
    assert checked["losses"][2]["decodable"] == pytest.approx(0.8)
    assert checked["losses"][2]["worst"] is None, "some sets do not decode"
    assert checked["losses"][0]["worst"] == pytest.approx(2**0.5)
    assert "0.8000" in output("check", "replication")


def test_a_parameter_may_be_a_list() -> None:
    sizes = ("--learners", "3", "--units", "2", "--json")
    shown = json.loads(output("show", "vandermonde", *sizes, "--set", "nodes=[1, 2]"))
    assert shown["matrix"] == [[1.0, 4.0], [1.0, 2.0], [1.0, 1.0]]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("show", "cyclic", "--learners", "1"), "the loss of 1 learners is tolerated by 2"),
        (("check", "cyclc"), "did you mean 'cyclic'"),
        (("show", "cyclic", "--set", "tolerance"), "not KEY=VALUE"),
        (("show", "cyclic", "--set", "tolerance=many"), "not a number or a list"),
        (("show", "mds", "--set", "frames=1.5"), "code.frames = 1.5 in --set: must be a valid int"),
        (("check", "ldgm", "--set", "density=[1]"), "code.density = .* must be a valid number"),
        (("check", "cyclic", "--set", "tolerance=true"), "code.tolerance = True in --set: must be"),
        (("show", "vandermonde", "--set", "nodes=[1, null]"), "code.nodes = .* in --set: must be"),
    ],
)
def test_a_mistake_is_one_line_and_exit_status_two(words: tuple[str, ...], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        RUN.invoke(app, list(words), catch_exceptions=False)
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
