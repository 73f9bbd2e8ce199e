"""Laws that every algorithm, environment and code keeps, as tests that pytest runs.

The author of a plug-in writes two lines in a test module:

    from fullrank.conformance import algorithm_laws

    TestMine = algorithm_laws("mine")

The laws are those that the built-in plug-ins are tested by. They need pytest.
"""

from typing import Any

import pytest

for _module in ("algorithms", "environments", "codes"):
    pytest.register_assert_rewrite(f"{__name__}.{_module}")

from fullrank.conformance.algorithms import AlgorithmLaws  # noqa: E402 - rewritten first
from fullrank.conformance.codes import CodeLaws, CodeSubject  # noqa: E402
from fullrank.conformance.environments import EnvironmentLaws, Made  # noqa: E402
from fullrank.conformance.subjects import Subject  # noqa: E402

__all__ = [
    "AlgorithmLaws",
    "CodeLaws",
    "EnvironmentLaws",
    "algorithm_laws",
    "code_laws",
    "environment_laws",
]


def algorithm_laws(name: str, **settings: Any) -> type[AlgorithmLaws]:
    """Return the laws of an algorithm, to be bound to a name that begins with ``Test``.

    Args:
        name: Registered name.
        settings: Settings other than the defaults; without ``batch_size`` and ``hidden`` among
            them, these are the laws' own.
    """

    class Laws(AlgorithmLaws):
        @pytest.fixture
        def subject(self) -> Subject:
            return Subject(name, settings)

    return Laws


def environment_laws(
    name: str, *, agents: int = 0, seeded: bool = True, **params: Any
) -> type[EnvironmentLaws]:
    """Return the laws of an environment, to be bound to a name that begins with ``Test``.

    Args:
        name: Registered name, or ``package.module:factory`` of PettingZoo environments.
        agents: Number of agents; 0 means the environment's default.
        seeded: False if all episodes begin alike.
        params: Parameters of the environment.
    """

    class Laws(EnvironmentLaws):
        @pytest.fixture
        def made(self) -> Made:
            return Made(name, agents, params, seeded=seeded)

    return Laws


def code_laws(name: str, *, exact: bool = True, **params: Any) -> type[CodeLaws]:
    """Return the laws of a code, to be bound to a name that begins with ``Test``.

    Args:
        name: Registered name.
        exact: False if its rows may be too ill-conditioned to decode exactly.
        params: Parameters of the code.
    """

    class Laws(CodeLaws):
        @pytest.fixture
        def family(self) -> CodeSubject:
            return CodeSubject(name, params, exact=exact)

    return Laws
