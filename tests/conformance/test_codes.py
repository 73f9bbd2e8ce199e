"""Laws that every registered code keeps."""

import numpy as np
import pytest
from tests.registries import shipped

from fullrank.codes import codes, make_code
from fullrank.common.errors import CodeError
from fullrank.conformance import CodeLaws
from fullrank.conformance.codes import CodeSubject

INEXACT = {"vandermonde"}
"""The certificate refuses it (tests/unit/codes/test_certificate.py)."""


class TestCodes(CodeLaws):
    @pytest.fixture(params=shipped(codes))
    def family(self, request: pytest.FixtureRequest) -> CodeSubject:
        return CodeSubject(request.param, {}, exact=request.param not in INEXACT)


@pytest.mark.parametrize("name", ["mds", "random_sparse", "ldgm"])
def test_another_seed_gives_another_random_code(name: str) -> None:
    first, second = (make_code(name, rows=24, units=12, seed=s).matrix for s in (0, 1))
    assert not np.array_equal(first, second)


@pytest.mark.parametrize(
    "name", [name for name in shipped(codes) if codes.get(name).tolerating(0) is not None]
)
def test_a_negative_tolerance_is_refused(name: str) -> None:
    with pytest.raises(CodeError, match=f"{name} needs tolerance >= 0: -1"):
        codes.build(name, **(codes.get(name).tolerating(-1) or {}))
