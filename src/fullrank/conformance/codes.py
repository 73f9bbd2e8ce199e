"""Laws that every code keeps."""

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from fullrank.codes import Code, codes, make_code
from fullrank.codes.analysis import decodable_given_losses
from fullrank.codes.conditions import decodable, loss_patterns
from fullrank.codes.decoding.decoder import Decoder
from fullrank.codes.targets import each_unit, sum_of_units, sums_of_groups
from fullrank.common.errors import CodeError
from fullrank.common.types import Matrix
from fullrank.conformance.documentation import undocumented

SIZES = ((1, 1), (4, 3), (9, 9), (10, 5), (15, 8), (24, 12))
"""Rows and units; a code need not exist for all of them."""
WANTED = ("own", "units", "sum", "groups")
"""What is decoded: the code's own target, each unit, their sum, or sums of groups."""


@dataclass(frozen=True)
class CodeSubject:
    """A registered code with parameters."""

    name: str
    params: Mapping[str, Any]
    exact: bool = True
    """False if its rows may be too ill-conditioned to decode exactly."""

    def built(self, rows: int, units: int, seed: int = 0) -> Code:
        """Return a code.

        Raises:
            CodeError: It does not exist for these sizes.
        """
        with warnings.catch_warnings(action="ignore"):  # conditions are the subject of the laws
            return make_code(self.name, rows=rows, units=units, seed=seed, **self.params)

    def all(self) -> Iterator[Code]:
        """Yield the codes of all sizes for which there is one."""
        for rows, units in SIZES:
            try:
                yield self.built(rows, units)
            except CodeError:
                continue


class CodeLaws:
    """Laws of one code: pytest runs the methods of a subclass whose name begins with Test.

    The fixture ``family`` is the code; see ``code_laws``.
    """

    @pytest.fixture
    def family(self) -> CodeSubject:
        """Return the code; a subclass overrides this, and may have several."""
        raise NotImplementedError("override the fixture `family`, or use code_laws(NAME)")

    def test_it_exists_for_some_size(self, family: CodeSubject) -> None:
        """Other laws are of the sizes for which there is a code."""
        assert list(family.all()), f"{family.name} refuses all (rows, units) of {SIZES}"

    def test_a_code_is_what_was_asked_for_and_all_its_rows_decode(
        self, family: CodeSubject
    ) -> None:
        """C has a row for each learner, a column for each unit, and the rank to recover them."""
        for code in family.all():
            rows, units = code.rows, code.units
            assert code.name == family.name
            assert code.matrix.shape == (rows, units)
            assert code.matrix.dtype == np.float64
            assert np.isfinite(code.matrix).all()
            assert not np.signbit(code.matrix[code.matrix == 0.0]).any()
            assert code.load.tolist() == [sum(c != 0.0 for c in row) for row in code.matrix]
            assert code.redundancy == rows / units
            assert not code.matrix.flags.writeable
            assert not code.load.flags.writeable
            decoder = Decoder(code)
            for row in range(rows):
                decoder.offer(row=row)
            assert decoder.decodable, f"all {rows} rows together do not decode"
            if code.recovers_units:
                assert np.linalg.matrix_rank(code.matrix) == units

    def test_equal_seeds_make_equal_matrices(self, family: CodeSubject) -> None:
        """Every process builds C by itself."""
        for code in family.all():
            first, second = (family.built(code.rows, code.units, seed=7) for _ in range(2))
            assert first.matrix.tobytes() == second.matrix.tobytes(), (
                "the matrix does not follow from the seed: draw from the given generator alone"
            )

    def test_any_tolerated_loss_decodes(self, family: CodeSubject) -> None:
        """A run relies on the tolerance that its code states."""
        for code in family.all():
            if not family.exact and code.units > 8:  # no rank in float64
                continue
            patterns = loss_patterns(code.rows, code.tolerance, limit=2000)
            assert decodable(code.matrix, patterns, target=code.target).all(), (
                f"{code.rows} rows of {code.units} units state tolerance {code.tolerance}, and "
                "some losses of as many rows do not decode"
            )

    def test_one_loss_more_than_tolerated_may_not_decode(self, family: CodeSubject) -> None:
        """A code that is not probabilistic states its whole tolerance; all patterns are tried."""
        for code in family.all():
            if code.certificate != "generic" and code.rows <= 15:
                assert decodable_given_losses(code, code.tolerance + 1).value < 1.0, (
                    f"{code.rows} rows of {code.units} units survive more losses than stated"
                )

    @pytest.mark.parametrize("wanted", WANTED)
    def test_decoding_any_decodable_set_gives_the_bits_of_the_target(
        self, family: CodeSubject, wanted: str
    ) -> None:
        """The first rows that suffice, in any order, have the bits of one place."""
        if not family.exact:
            pytest.skip("the code is not said to be exact")
        for built in family.all():
            try:
                code = built.recovering(target_of(built, wanted))
            except CodeError:
                assert not built.recovers_units
                continue
            rows, units = code.rows, code.units
            generator = np.random.default_rng(rows * units)
            updates = np.rint(generator.normal(scale=2.0**32, size=(units, 40))) * 2.0**-36
            updates = updates.clip(-0.5, 0.5)
            for _ in range(20):
                decoder = Decoder(code)
                for row in generator.permutation(rows):
                    decoder.offer(row=int(row), vector=code.matrix[row] @ updates)
                    if decoder.decodable:
                        break
                found, exact = decoder.decode(), decoder.exact
                assert exact, (
                    "no certificate: rows are too ill-conditioned; if they are by nature, say "
                    "exact=False"
                )
                assert found.tobytes() == (code.target @ updates + 0.0).tobytes()

    def test_impossible_sizes_are_refused_with_the_inequality(self, family: CodeSubject) -> None:
        """A user reads which number to raise."""
        with pytest.raises(CodeError, match="needs rows >= 1 and units >= 1"):
            family.built(3, 0)
        if all(code.recovers_units for code in family.all()):
            needed = rf"{family.name} needs rows >= units( \+ tolerance)?: 5 < 8"
            with pytest.raises(CodeError, match=needed):
                family.built(5, 8)

    def test_every_parameter_has_its_meaning_below_it(self, family: CodeSubject) -> None:
        """The text is shown where the key is explained."""
        missing = undocumented(codes.get(family.name))
        assert not missing, f"write a string with meaning and unit below: {', '.join(missing)}"


def target_of(code: Code, wanted: str) -> Matrix:
    """Return a target for the code's units."""
    units = code.units
    size = next(size for size in (3, 2, 5, units) if units % size == 0)
    targets = {
        "own": code.target,
        "units": each_unit(units),
        "sum": sum_of_units(units),
        "groups": sums_of_groups(units // size, size),
    }
    return targets[wanted]
