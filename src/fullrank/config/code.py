"""Construction of the configured code."""

from fullrank.codes import Code
from fullrank.codes.analysis import witnesses
from fullrank.codes.learner_codes import code_for_learners, tolerance_asked_of
from fullrank.common.errors import CodeError
from fullrank.common.types import Matrix
from fullrank.config.auto_code import code_choices
from fullrank.config.plugins import learners_of
from fullrank.config.tree import RunConfig


def code_of(config: RunConfig, *, units: int, target: Matrix | None = None) -> Code:
    """Build the configured code of the configured learners.

    Args:
        config: The configuration.
        units: M, number of units.
        target: T that the code has to recover; by default every unit.

    Raises:
        CodeError: No such code exists for N learners and M = ``units``; the message names the
            necessary change.
    """
    settings, learners = config.code, learners_of(config, units=units, target=target)
    family = code_choices.build(settings.name, **settings.params)
    asked = tolerance_asked_of(family)
    if learners <= asked:
        raise CodeError(
            f"code.tolerance = {asked} lost learners needs more than {asked} learners: use "
            f"--learners {asked + 1} or a lower code.tolerance"
        )
    code = code_for_learners(
        family, learners=learners, units=units, seed=config.seed, target=target
    )
    _require_witnesses(config, code)
    return code


def _require_witnesses(config: RunConfig, code: Code) -> None:
    """Refuse a code with too few holders for ``audit.byzantine``.

    Raises:
        CodeError: Too few learners would agree on a statement behind a commit.
    """
    faults, found = config.audit.byzantine, witnesses(code)
    if found > faults:
        return
    sums = (
        "" if code.recovers_units else ", and of sums only fractional and replication repeat rows"
    )
    raise CodeError(
        f"audit.byzantine = {faults} needs {faults + 1} learners that compute alike, and "
        f"{code.name} with {code.learners} learners has {found}: raise code.tolerance to {faults}, "
        f"or further to let learners be late{sums}"
    )
