"""Laws that the problem, the gradients, the optimiser and the actor of every algorithm keep."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import isfinite
from typing import Any

import numpy as np
import pytest
import torch

from fullrank.algorithms import Algorithm
from fullrank.codes import codes
from fullrank.common.errors import Cancelled, CheckpointUnusable, ConfigError
from fullrank.common.types import FloatArray
from fullrank.common.updates import GRID, unit_digest
from fullrank.conformance.documentation import undocumented
from fullrank.conformance.subjects import (
    HIDDEN,
    TEAMS,
    Subject,
    coded,
    companies,
    computed,
    declared,
    differing,
    draws,
    random_updates,
    recorded,
    same,
    sections_of,
    state_of,
    sums,
    trained,
    units_of,
)
from fullrank.environments import AgentSpec, Continuous, Discrete
from fullrank.local import LocalRun
from fullrank.replay.episodes import episodes_in
from fullrank.replay.items import rows_of_items, spread
from fullrank.training.block_player import acting_sections

IMPURE = (
    "an update may depend on parameters, minibatch, seed and iteration alone: take random numbers "
    "from `draws`, never from torch or numpy (nor dropout), and change nothing while computing"
)
"""Cause of bits that differ from one computation to the next."""


class AlgorithmLaws:
    """Laws of one algorithm: pytest runs the methods of a subclass whose name begins with Test.

    The fixture ``subject`` is the algorithm; see ``algorithm_laws``.
    """

    @pytest.fixture
    def subject(self) -> Subject:
        """Return the algorithm; a subclass overrides this, and may have several."""
        raise NotImplementedError("override the fixture `subject`, or use algorithm_laws(NAME)")

    @pytest.fixture
    def tried(self) -> Sequence[str]:
        """Return the names of the codes that it is trained with, by default all."""
        return list(codes)

    @pytest.fixture(autouse=True)
    def restore_threads(self) -> Iterator[None]:
        """Restore the number of threads."""
        threads = torch.get_num_threads()
        yield
        torch.set_num_threads(threads)

    @pytest.mark.parametrize(("batch", "hidden"), [(16, 16), (333, 50)])
    def test_bits_of_a_unit_do_not_depend_on_company_or_order(
        self, subject: Subject, batch: int, hidden: int
    ) -> None:
        """A learner's row holds any units; all learners that hold one compute the same bits."""
        check_company(subject.build(batch=batch, hidden=hidden), subject.transitions(batch))

    def test_computing_changes_neither_parameters_nor_what_is_computed_next(
        self, subject: Subject
    ) -> None:
        """An update is a pure function, which learners and audits compute at any time."""
        algorithm, rows = subject.build(), subject.transitions()
        before = sections_of(algorithm)
        torch.manual_seed(1)
        first = computed(algorithm, rows, units_of(algorithm))
        torch.manual_seed(2)
        computed(algorithm, subject.transitions(seed=1), units_of(algorithm), iteration=6)
        again = computed(algorithm, rows, units_of(algorithm))
        same(again, first, cause=IMPURE)
        same(sections_of(algorithm), before, cause=IMPURE)

    def test_initial_parameters_follow_from_the_seed(self, subject: Subject) -> None:
        """Every process makes the parameters of iteration 0 by itself."""
        made = list[dict[int, bytes]]()
        for seed in (1, 2):
            torch.manual_seed(seed)
            np.random.seed(seed)
            made.append(sections_of(subject.build()))
        same(*made, cause="networks are initialised from another seed than the run's")
        other = sections_of(subject.build(seed=12))
        assert differing(other, made[0]), "another seed makes the same initial parameters"

    def test_bits_do_not_depend_on_where_the_batch_lies_in_memory(self, subject: Subject) -> None:
        """Minibatches come from a message or from a mapped table."""
        algorithm, rows = subject.build(), subject.transitions()
        memory = np.empty(rows.size + 3, np.float32)
        shifted = memory[3:].reshape(rows.shape)
        shifted[:] = rows
        units = units_of(algorithm)
        found = [computed(algorithm, each, units) for each in (shifted, rows)]
        same(*found, cause=IMPURE)

    def test_a_unit_reads_no_section_beyond_its_needs(self, subject: Subject) -> None:
        """A learner is sent the sections that ``reads`` names; all others are NaN here."""
        source, learner, rows = subject.build(), subject.build(), subject.transitions()
        for unit in units_of(source):
            for section in learner.problem.sections:
                needed = section.id in source.problem.needs(unit)
                values = source.parameters.view(section.id) if needed else np.nan
                learner.parameters.view(section.id)[:] = values
            learner.parameters.written()
            found = [computed(each, rows, [unit]) for each in (learner, source)]
            same(*found, cause="it reads a network that `reads` does not name, or is impure")

    def test_a_unit_reads_no_item_of_the_minibatch_beyond_its_own(self, subject: Subject) -> None:
        """A learner fetches the items that its units read; all others are zero here."""
        algorithm, rows = subject.build(), subject.transitions()
        problem, units = algorithm.problem, units_of(algorithm)
        if problem.items is None:
            assert problem.items_of(units) is None
            return
        column, size, lengths = None, problem.data.batch_size, np.ones(len(rows), np.int64)
        if problem.episodes is not None:
            column = problem.episodes.length
            lengths = np.array([place.stop - place.start for place in episodes_in(rows, column)])
        read = sorted(item for items in problem.items for item in items)
        assert read == sorted([*range(size)] * (len(read) // size))
        assert problem.items_of(units) is None
        for unit in units:
            items = problem.items_of([unit]) or tuple(range(size))
            own = spread(rows[rows_of_items(lengths, items)], lengths, items, length_column=column)
            found = [computed(algorithm, each, [unit]) for each in (own.rows, rows)]
            same(*found, cause="a unit reads more than its items of the minibatch")

    def test_derived_columns_follow_from_their_episode_alone(self, subject: Subject) -> None:
        """Whoever plays an episode, beside whichever others, derives the bits that audits do."""
        algorithm, rows = subject.build(), subject.transitions()
        layout, prepare = algorithm.problem.episodes, algorithm.prepare
        if prepare is None:
            assert layout is None or not layout.derived, "nothing fills the derived columns"
            return
        assert layout is not None, "only rows of whole episodes have derived columns"
        rows[:, layout.entries.stop :] = 0.0
        together = rows.copy()
        prepare(together)
        played = slice(layout.entries.stop)
        assert together[:, played].tobytes() == rows[:, played].tobytes(), (
            "it changes what was played"
        )
        for place in episodes_in(rows, layout.length):
            alone = rows[place].copy()
            prepare(alone)
            beside = together[place].tobytes() == alone.tobytes()
            assert beside, "derived columns depend on other episodes: evaluate each by itself"

    def test_derived_columns_read_no_network_beyond_those_that_play(self, subject: Subject) -> None:
        """A collector has the networks that act and those of ``prepared_by``; others are NaN."""
        source, collector, rows = subject.build(), subject.build(), subject.transitions()
        if source.prepare is None or collector.prepare is None:
            return
        sent = acting_sections(source)
        for section in collector.problem.sections:
            if section.id not in sent:
                collector.parameters.view(section.id)[:] = np.nan
        collector.parameters.written()
        found = rows.copy()
        source.prepare(rows)
        collector.prepare(found)
        assert found.tobytes() == rows.tobytes(), (
            "it derives columns from a network that `prepared_by` does not name"
        )

    def test_micro_batches_add_up_to_the_update_of_the_minibatch(self, subject: Subject) -> None:
        """The number of units is no hyperparameter of what is learned."""
        if subject.collects or not hasattr(subject.config(), "micro_batches"):
            return
        few, many = (subject.of(micro_batches=count).build() for count in (1, 3))
        if few.problem.unit_sizes[0] != many.problem.unit_sizes[0]:
            few = subject.of(micro_batches=2).build()  # a whole update may be clipped and a mean
        rows = subject.transitions()
        if few.prepare is not None:
            few.prepare(rows)
        if draws(many, rows):
            return  # micro-batches have draws of their own
        for (one, unclamped), (other, also) in zip(sums(few, rows), sums(many, rows), strict=True):
            apart, whole = (np.abs(each)[unclamped & also] for each in (one - other, one))
            assert apart.max(initial=0.0) <= 1e-4 * whole.max(initial=0.0), (
                "the sum of the micro-batches depends on their number: divide by counts of the "
                "whole minibatch (`whole.count`, `whole.acted`, `batch.steps`, `batch.weight`), "
                "not by those of the unit"
            )
        expected, told = (recorded(each, rows) for each in (few, many))
        for name in expected.keys() & told.keys():
            if max(abs(expected[name]), abs(told[name])) > 2**20:
                continue  # shares may have been clamped
            assert told[name] == pytest.approx(expected[name], rel=1e-3, abs=1e-4), (
                f"the statistic {name!r} depends on the number of micro-batches: return the unit's "
                "share of it, divided as losses are"
            )

    def test_sections_are_numbered_and_sized_as_their_views(self, subject: Subject) -> None:
        """Sections travel as flat float32 arrays."""
        algorithm = subject.build()
        assert [section.id for section in algorithm.problem.sections] == list(
            range(len(algorithm.problem.sections))
        )
        rows = algorithm.problem.episodes or subject.layout()
        assert algorithm.problem.row_size == rows.row_size
        for section in algorithm.problem.sections:
            view = algorithm.parameters.view(section.id)
            assert view.shape == (section.size,)
            assert view.dtype == np.float32
            assert view.flags.writeable

    def test_the_problem_is_known_before_anything_is_made(self, subject: Subject) -> None:
        """Services that compute nothing describe the same units, sections and sizes."""
        algorithm, problem = subject.build(), subject.config().problem(subject.spec())
        assert replace(problem, target=None) == replace(algorithm.problem, target=None)
        if problem.target is None or algorithm.problem.target is None:
            assert problem.target is algorithm.problem.target
        else:
            assert np.array_equal(problem.target, algorithm.problem.target)

    def test_work_can_be_abandoned_at_every_cancellation_point(self, subject: Subject) -> None:
        """A learner stops where the round was decided without it, and computes the next one."""
        algorithm, rows = subject.build(), subject.transitions()
        units, points = units_of(algorithm), 0
        compute = algorithm.gradients.compute
        whole = computed(algorithm, rows, units)

        def count() -> None:
            nonlocal points
            points += 1

        list(compute(rows, units, iteration=5, check_cancelled=count))
        assert points >= min(4, 2 * len(units)), "call check_cancelled between the stages"
        for point in range(points):
            calls = iter(range(points))

            def abandon(point: int = point, calls: Iterator[int] = calls) -> None:
                if next(calls) == point:
                    raise Cancelled

            with pytest.raises(Cancelled):
                list(compute(rows, units, iteration=5, check_cancelled=abandon))
        again = computed(algorithm, rows, units)
        same(again, whole, cause=IMPURE)

    def test_updates_lie_on_the_grid_and_have_one_zero(self, subject: Subject) -> None:
        """Decoding is exact for multiples of 2^-36."""
        algorithm = subject.build()
        rows, units = subject.transitions(), units_of(algorithm)
        for unit, update in algorithm.gradients.compute(rows, units, iteration=0):
            assert update.shape == (algorithm.problem.unit_sizes[unit],)
            assert update.dtype == np.float32
            assert np.isfinite(update).all(), f"the update of unit {unit} is not finite"
            scaled = update.astype(np.float64) / GRID
            assert np.array_equal(scaled, np.rint(scaled))
            assert not np.signbit(update[update == 0]).any()
            assert np.any(update != 0), f"unit {unit} learns nothing: its update is zero"

    def test_updates_are_not_overwritten_by_a_later_call(self, subject: Subject) -> None:
        """Updates are kept until they are sent."""
        algorithm, rows = subject.build(), subject.transitions()
        kept = dict(algorithm.gradients.compute(rows, units_of(algorithm)[:2], iteration=0))
        digests = {unit: unit_digest(update) for unit, update in kept.items()}
        computed(algorithm, subject.transitions(seed=1), units_of(algorithm), iteration=1)
        assert {unit: unit_digest(update) for unit, update in kept.items()} == digests

    def test_equal_updates_give_equal_states_on_any_number_of_threads(
        self, subject: Subject
    ) -> None:
        """Any controller commits the same parameters."""
        states = []
        for threads in (1, 2, 1):
            torch.set_num_threads(threads)
            algorithm = subject.build()
            for seed in range(3):
                algorithm.optimiser.step(random_updates(algorithm, seed=seed))
            states.append(state_of(algorithm))
        same(states[0], states[1], cause="the number of threads changes the state")
        same(states[0], states[2])

    def test_a_restored_state_goes_on_as_the_original(self, subject: Subject) -> None:
        """A resumed run has the bits of the uninterrupted one."""
        original, restored = subject.build(), subject.build()
        original.optimiser.step(random_updates(original, seed=0))
        saved = original.optimiser.state()
        original.optimiser.step(random_updates(original, seed=1))
        restored.optimiser.load(saved)
        restored.optimiser.step(random_updates(restored, seed=1))
        same(
            sections_of(restored),
            sections_of(original),
            cause="`Optimiser.state` lacks something that `step` reads",
        )
        same(state_of(restored), state_of(original))

    def test_a_state_that_does_not_fit_is_refused(self, subject: Subject) -> None:
        """A checkpoint of another version or algorithm is one error line."""
        algorithm = subject.build()
        state = dict(algorithm.optimiser.state())
        key = next(iter(state))
        missing = {other: value for other, value in state.items() if other != key}
        with pytest.raises(CheckpointUnusable, match=key):
            algorithm.optimiser.load(missing)
        with pytest.raises(CheckpointUnusable, match=key):
            algorithm.optimiser.load({**state, key: np.zeros(3, np.float32)})

    def test_the_fingerprint_names_torch_and_the_threads(self, subject: Subject) -> None:
        """Learners whose bits may differ have another fingerprint."""
        algorithm = subject.build()
        torch.set_num_threads(1)
        one = algorithm.gradients.fingerprint()
        assert torch.__version__ in one
        assert algorithm.gradients.fingerprint() == one
        torch.set_num_threads(2)
        assert algorithm.gradients.fingerprint() != one

    def test_actions_are_keyed_and_fit_their_specifications(self, subject: Subject) -> None:
        """A repeated collection plays the same episodes."""
        algorithm, where = subject.build(), subject.layout()
        generator = np.random.default_rng(0)
        shape = (4, sum(where.observation_sizes))
        observation = generator.standard_normal(shape, dtype=np.float32)
        alive = generator.random((4, len(subject.team))) < 0.7
        actor, memory = algorithm.actor, algorithm.actor.memory(4)
        action, _ = actor.act(observation, memory, iteration=3, step=2, alive=alive)
        again, _ = actor.act(observation, memory, iteration=3, step=2, alive=alive)
        other, _ = actor.act(observation, memory, iteration=3, step=3, alive=alive)
        greedy, _ = actor.act_greedily(observation, memory)
        assert np.array_equal(action, again), "exploration is not keyed by iteration and step"
        assert not np.array_equal(action, other), "every step explores alike"
        for agent, spec in enumerate(subject.team):
            own = action[:, where.action_of(agent)]
            assert not own[~alive[:, agent]].any()
            for taken in (own[alive[:, agent]], greedy[:, where.action_of(agent)]):
                if isinstance(spec.action, Continuous):
                    assert (taken >= spec.action.low).all()
                    assert (taken <= spec.action.high).all()
                    continue
                for choice in by_choice(taken, spec):
                    np.testing.assert_allclose(choice.sum(1), 1.0, atol=1e-6)
                relaxed = isinstance(spec.action, Discrete) and spec.action.relaxed
                assert relaxed or set(np.unique(taken)) <= {0.0, 1.0}

    def test_actions_that_are_not_available_are_never_taken(self, subject: Subject) -> None:
        """Environments refuse them."""
        algorithm, where = subject.build(), subject.layout()
        generator = np.random.default_rng(1)
        shape = (64, sum(where.observation_sizes))
        observation = generator.standard_normal(shape, dtype=np.float32)
        available = generator.random((64, sum(where.action_sizes))) < 0.5
        for agent, spec in enumerate(subject.team):
            for choice in by_choice(available[:, where.action_of(agent)], spec):
                choice[:, 0] = True  # at least one action is available
        actor, alive = algorithm.actor, np.ones((64, where.agents), bool)
        explored, _ = actor.act(
            observation, actor.memory(64), iteration=0, step=0, alive=alive, available=available
        )
        greedy, _ = actor.act_greedily(observation, actor.memory(64), available=available)
        for agent, spec in enumerate(subject.team):
            own = where.action_of(agent)
            if spec.action.choices:
                assert not explored[:, own][~available[:, own]].any()
                assert not greedy[:, own][~available[:, own]].any()

    def test_published_parameters_make_another_process_act_and_compute_alike(
        self, subject: Subject
    ) -> None:
        """Learners, collectors and exports have what is published, and nothing else."""
        source, other = subject.build(), subject.build(seed=12)
        source.optimiser.step(random_updates(source, seed=0))
        for section in source.problem.sections:
            other.parameters.view(section.id)[:] = source.parameters.view(section.id)
        other.parameters.written()
        shape = (8, sum(subject.layout().observation_sizes))
        seen = np.random.default_rng(2).standard_normal(shape, dtype=np.float32)
        first, second = (
            each.actor.act_greedily(seen, each.actor.memory(8))[0] for each in (source, other)
        )
        assert np.array_equal(first, second), "the actor holds something that no section does"

    @pytest.mark.parametrize("kind", TEAMS)
    def test_a_team_is_trained_or_refused_in_one_line(self, subject: Subject, kind: str) -> None:
        """A user reads what is wrong with the environment, and no traceback."""
        config, agents = subject.config(hidden=HIDDEN), TEAMS[kind]
        if subject.collects:
            pytest.skip("learners collect in an environment of their own")
        refused = ""
        try:
            made = config.make(subject.spec(agents), seed=0, device="cpu")
            assert made.problem.units == config.problem(subject.spec(agents)).units
        except ConfigError as error:
            refused = f"{error}."
        assert refused != ".", "say which agent is refused, and what to change"
        assert "\n" not in refused

    def test_every_setting_has_its_meaning_below_it(self, subject: Subject) -> None:
        """The text is shown where the key is explained."""
        missing = undocumented(type(subject.config()))
        assert not missing, f"write a string with meaning and unit below: {', '.join(missing)}"

    @pytest.mark.filterwarnings("ignore::UserWarning")  # of ill-conditioned codes
    def test_every_code_and_any_stragglers_commit_the_bits_of_one_place(
        self, subject: Subject, tried: Sequence[str]
    ) -> None:
        """Whatever rows J a round rests on, its update and its statistics are the same."""
        config = trained(subject)
        reference = LocalRun(config, coded=False)
        committed = [(each.update_digest, each.statistics) for each in reference.train()]
        assert len({digest for digest, _ in committed}) == len(committed), "it learns nothing"
        made = {name: coded(config, reference.training.problem, name) for name in tried}
        assert any(made.values()), f"none of {', '.join(tried)} codes {len(committed)} iterations"
        for name, late in made.items():
            if late is None:
                continue
            run = LocalRun(late, independent_learners=True)
            found = [(each.update_digest, each.statistics) for each in run if each.exact]
            if len(found) < len(committed) and name == "vandermonde":  # refused by its certificate
                continue
            assert found == committed, f"with code.name = {name!r} updates differ: {IMPURE}"
            assert run.parameter_digest() == reference.parameter_digest(), name

    def test_what_is_recorded_is_finite_and_has_the_declared_names_throughout(
        self, subject: Subject
    ) -> None:
        """Charts have one curve for each name, or one for each group."""
        iterations = LocalRun(trained(subject), coded=False).train()
        for each in iterations:
            lost = [name for name, value in each.statistics.items() if not isfinite(value)]
            assert not lost, f"iteration {each.iteration}: {', '.join(lost)} is not finite"
        own = [{n for n in each.statistics if "return" not in n} for each in iterations[1:]]
        assert all(names == own[0] for names in own)
        found = iterations[-1].statistics
        curves = {*found, *(name.rpartition("/")[0] for name in found)}
        missing = [name for name in declared(subject) if name not in curves]
        assert not missing, f"{', '.join(missing)}: declared, but the optimiser records none"


def check_company(algorithm: Algorithm, rows: FloatArray) -> list[dict[int, bytes]]:
    """Compare the bits of each unit alone with its bits in random company and order.

    Returns:
        Those of one thread, and those of two.
    """
    by_threads = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        alone = {unit: computed(algorithm, rows, [unit])[unit] for unit in units_of(algorithm)}
        for units in companies(len(alone), seed=len(rows) + threads):
            together = computed(algorithm, rows, units)
            assert sorted(together) == sorted(units)
            expected = {unit: alone[unit] for unit in units}
            same(together, expected, cause=f"computed beside {units}; {IMPURE}")
        by_threads.append(alone)
    return by_threads


def by_choice(action: np.ndarray[Any, Any], spec: AgentSpec) -> list[np.ndarray[Any, Any]]:
    """Return views of the parts of an agent's actions or masks, one for each choice."""
    parts = np.split(action, np.cumsum(spec.action.choices[:-1]), axis=1)
    return parts if spec.action.choices else []
