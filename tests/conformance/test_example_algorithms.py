"""The examples of algorithms from outside keep the laws, in one short file each."""

import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import pytest

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


@pytest.mark.integration
class TestExamples(AlgorithmLaws):
    @pytest.fixture(params=sorted(FILES))
    def subject(self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Subject:
        name = str(request.param)
        monkeypatch.syspath_prepend(str(FILES[name].parent))
        if name not in sys.modules:
            import_module(name)
        return Subject(name, SETTINGS.get(name, {}))

    @pytest.fixture
    def tried(self) -> Sequence[str]:
        return FEW_CODES
