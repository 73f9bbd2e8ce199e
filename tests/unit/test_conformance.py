"""The shipped laws fail where an algorithm breaks them, with the cause in one line."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from fullrank.algorithms import Algorithm, EnvironmentSpec, Problem, register
from fullrank.algorithms.ippo import IPPO
from fullrank.algorithms.maddpg import MADDPG
from fullrank.algorithms.on_policy import ENTRIES
from fullrank.algorithms.qmix import QMIX
from fullrank.algorithms.transitions import Draws, Transitions
from fullrank.algorithms.updates import Entries
from fullrank.algorithms.values import TD_ERROR
from fullrank.algorithms.vdn import VDN
from fullrank.common.types import FloatArray
from fullrank.conformance import algorithm_laws, code_laws, environment_laws
from fullrank.conformance.codes import CodeSubject
from fullrank.conformance.environments import Made
from fullrank.conformance.subjects import TEAMS, Subject
from fullrank.replay.episodes import EpisodeLayout


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


@register("averaging")
@dataclass(frozen=True, slots=True, kw_only=True)
class Averaging(MADDPG):
    """Takes means over the transitions of a micro-batch."""

    def losses(self, agent: int, nets: Any, batch: Transitions, draws: Draws) -> Any:
        losses, statistics = MADDPG.losses(self, agent, nets, batch, draws)
        return {name: loss / batch.weight[agent].sum() for name, loss in losses.items()}, statistics


@register("averaging_on_policy")
@dataclass(frozen=True, slots=True, kw_only=True)
class AveragingOnPolicy(IPPO):
    """Takes means over the steps of a micro-batch."""

    def losses(self, own: Any, nets: Any, steps: Any, whole: Any) -> Any:
        losses, statistics = IPPO.losses(self, own, nets, steps, whole)
        factor = whole.count / own.among(steps.earns).sum()
        return {name: loss * factor for name, loss in losses.items()}, statistics


@register("averaging_values")
@dataclass(frozen=True, slots=True, kw_only=True)
class AveragingValues(VDN):
    """Takes means over the steps of a micro-batch."""

    def losses(self, nets: Any, batch: Any) -> Any:
        losses, statistics = VDN.losses(self, nets, batch)
        factor = batch.steps / batch.valid.sum()
        return {name: loss * factor for name, loss in losses.items()}, statistics


@register("misjudging")
@dataclass(frozen=True, slots=True, kw_only=True)
class Misjudging(IPPO):
    """Compares values with those of other episodes, and does not name what it reads for them."""

    prepared_by: ClassVar[tuple[str, ...]] = ("scale",)

    def judged(self, own: Any, nets: Any, steps: Any) -> Any:
        found = IPPO.judged(self, own, nets, steps)
        return {**found, "value": found["value"] - found["value"].mean()}

    def make(self, environment: EnvironmentSpec, *, seed: int, device: str) -> Algorithm:
        """Build the roles; the optimiser takes statistics for others."""
        made = IPPO.make(self, environment, seed=seed, device=device)
        made.optimiser._entries = Entries(("loss", *ENTRIES.names[1:]))  # type: ignore[attr-defined]
        return made


@register("misjudging_values")
@dataclass(frozen=True, slots=True, kw_only=True)
class MisjudgingValues(QMIX):
    """Compares temporal differences with others', and names no mixer that it reads for them."""

    td_errors: bool = True

    def prepare(self, rows: FloatArray, nets: Any, layout: EpisodeLayout) -> None:
        QMIX.prepare(self, rows, nets, layout)
        rows[:, layout.columns[TD_ERROR]] /= rows[:, layout.columns[TD_ERROR]].max()

    def problem(self, environment: EnvironmentSpec) -> Problem:
        return replace(QMIX.problem(self, environment), prepared_by=())


@register("counting")
@dataclass(frozen=True, slots=True, kw_only=True)
class Counting(IPPO):
    """Records a mean over the steps of a micro-batch as its share."""

    def losses(self, own: Any, nets: Any, steps: Any, whole: Any) -> Any:
        losses, statistics = IPPO.losses(self, own, nets, steps, whole)
        return losses, {**statistics, "entropy": 0.0 * statistics["entropy"] + 1.0}


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


@pytest.mark.parametrize("name", ["misjudging", "misjudging_values"])
def test_derived_columns_that_depend_on_company_or_on_unnamed_networks_are_found(name: str) -> None:
    laws, subject = algorithm_laws(name)(), Subject(name)
    with pytest.raises(AssertionError, match="derived columns depend on other episodes"):
        laws.test_derived_columns_follow_from_their_episode_alone(subject)
    with pytest.raises(AssertionError, match="a network that `prepared_by` does not name"):
        laws.test_derived_columns_read_no_network_beyond_those_that_play(subject)


DETERMINISTIC = TEAMS["of continuous actions"]
"""Agents of whose actions MADDPG's losses draw none."""


@pytest.mark.parametrize(
    "subject",
    [
        Subject("averaging", agents=DETERMINISTIC),
        Subject("averaging_on_policy"),
        Subject("averaging_values"),
    ],
)
def test_means_over_a_micro_batch_in_place_of_the_minibatch_are_found(subject: Subject) -> None:
    with pytest.raises(AssertionError, match="divide by counts of the whole minibatch"):
        algorithm_laws(subject.name)().test_micro_batches_add_up_to_the_update_of_the_minibatch(
            subject
        )


def test_a_statistic_that_is_no_share_of_the_minibatch_is_named() -> None:
    with pytest.raises(AssertionError, match="the statistic 'entropy' depends on the number of"):
        algorithm_laws("counting")().test_micro_batches_add_up_to_the_update_of_the_minibatch(
            Subject("counting")
        )


def test_micro_batches_of_an_actor_critic_that_draws_nothing_add_up() -> None:
    algorithm_laws("maddpg")().test_micro_batches_add_up_to_the_update_of_the_minibatch(
        Subject("maddpg", agents=DETERMINISTIC)
    )


def test_statistics_that_are_declared_and_not_recorded_are_named() -> None:
    laws = algorithm_laws("misjudging")()
    with pytest.raises(AssertionError, match="policy_loss: declared, but the optimiser records"):
        laws.test_what_is_recorded_is_finite_and_has_the_declared_names_throughout(
            Subject("misjudging")
        )


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
