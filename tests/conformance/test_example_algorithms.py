"""The examples of algorithms from outside keep the laws, in one short file each."""

import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import pytest

from fullrank.config import load
from fullrank.conformance import AlgorithmLaws
from fullrank.conformance.subjects import Subject

from .algorithm_cases import FEW_CODES

EXAMPLES = Path(__file__).parents[2] / "examples"
MOST_LINES = 120
FILES = {path.stem: path for path in EXAMPLES.glob("*/*.py") if not path.stem.startswith("test_")}
SETTINGS = {"hysteretic": {"micro_batches": 2}}


def test_each_is_one_short_file() -> None:
    assert FILES.keys() == {"matd3", "facmac", "hysteretic", "ia2c"}
    for path in FILES.values():
        assert len(path.read_text().splitlines()) <= MOST_LINES, path


@pytest.mark.parametrize(
    ("name", "like"),
    [("matd3", "maddpg"), ("facmac", "maddpg"), ("hysteretic", "iql"), ("ia2c", "ippo")],
)
def test_sizes_of_a_run_are_those_of_algorithms_that_learn_alike(
    name: str, like: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    imported(name, monkeypatch)
    own, other = (load(options={"algorithm.name": each}).config for each in (name, like))
    assert (own.iterations, own.collect) == (other.iterations, other.collect)
    assert own.environment.copies == other.environment.copies


def imported(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FILES[name].parent))
    if name not in sys.modules:
        import_module(name)


@pytest.mark.integration
class TestExamples(AlgorithmLaws):
    @pytest.fixture(params=sorted(FILES))
    def subject(self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Subject:
        name = str(request.param)
        imported(name, monkeypatch)
        return Subject(name, SETTINGS.get(name, {}))

    @pytest.fixture
    def tried(self) -> Sequence[str]:
        return FEW_CODES
