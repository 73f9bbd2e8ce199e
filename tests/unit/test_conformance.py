"""The shipped laws fail where an algorithm breaks them, with the cause in one line."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from fullrank.algorithms import EnvironmentSpec, register
from fullrank.algorithms.maddpg import MADDPG
from fullrank.algorithms.transitions import Draws, Transitions
from fullrank.conformance import algorithm_laws, code_laws, environment_laws
from fullrank.conformance.codes import CodeSubject
from fullrank.conformance.environments import Made
from fullrank.conformance.subjects import Subject


@register("drawing")
@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing(MADDPG):
    """Draws from torch's generator."""

    def losses(self, agent: int, nets: Any, batch: Transitions, draws: Draws) -> Any:
        losses, statistics = MADDPG.losses(self, agent, nets, batch, draws)
        noise: Mapping[str, Tensor] = {
            name: loss * (1.0 + 0.1 * torch.rand(())) for name, loss in losses.items()
        }
        return noise, statistics


@register("reading")
@dataclass(frozen=True, slots=True, kw_only=True)
class Reading(MADDPG):
    """Names no target that its losses read, and says nothing of a setting."""

    unsaid: int = 0

    def losses(self, agent: int, nets: Any, batch: Transitions, draws: Draws) -> Any:
        return MADDPG.losses(self, agent, nets, batch, draws)

    def reads(self, environment: EnvironmentSpec, agent: int) -> Iterable[tuple[str, int]]:
        return [(role, k) for role, k in MADDPG.reads(self, environment, agent) if k == agent]


DRAWING, READING = (Subject(name, {"hidden_layers": 1}) for name in ("drawing", "reading"))


class Misjudged(Made):
    """An environment that says another number of steps than its episodes have."""

    def __call__(self, copies: int) -> Any:
        environment: Any = super().__call__(copies)
        environment.horizon += 1
        return environment


def test_a_draw_from_a_global_generator_is_found_and_named() -> None:
    laws = algorithm_laws("drawing")()
    with pytest.raises(AssertionError, match="take random numbers from `draws`"):
        laws.test_computing_changes_neither_parameters_nor_what_is_computed_next(DRAWING)
    with pytest.raises(AssertionError, match=r"computed beside \[.*\]; an update may depend"):
        laws.test_bits_of_a_unit_do_not_depend_on_company_or_order(DRAWING, 16, 16)


def test_a_network_that_reads_does_not_name_is_found() -> None:
    with pytest.raises(AssertionError, match="reads a network that `reads` does not name"):
        algorithm_laws("reading")().test_a_unit_reads_no_section_beyond_its_needs(READING)


def test_a_setting_without_a_text_is_named() -> None:
    with pytest.raises(AssertionError, match="write a string with meaning and unit below: unsaid"):
        algorithm_laws("reading")().test_every_setting_has_its_meaning_below_it(READING)


def test_a_code_or_an_environment_that_is_said_to_be_what_it_is_not_is_found() -> None:
    with pytest.raises(AssertionError, match="say exact=False"):
        code_laws("vandermonde")().test_decoding_any_decodable_set_gives_the_bits_of_the_target(
            CodeSubject("vandermonde", {}), "own"
        )
    for name, seeded, said in (
        ("matrix_game", True, "say seeded=False"),
        ("predator_prey", False, "leave out seeded=False"),
    ):
        with pytest.raises(AssertionError, match=said):
            environment_laws(name)().test_other_seeds_give_other_episodes(
                Made(name, 0, {}, seeded=seeded)
            )


def test_a_horizon_that_is_not_the_length_of_every_episode_is_found() -> None:
    with pytest.raises(AssertionError, match="horizon is 26, and after 25 steps of two episodes"):
        environment_laws(
            "predator_prey"
        )().test_every_episode_has_as_many_steps_as_the_horizon_says(
            Misjudged("predator_prey", 0, {})
        )
