"""The state machine of a run: the order in which it plays, draws, applies and stores."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.run.machine import Program, RunMachine
from fullrank.run.orders import (
    Amend,
    Apply,
    Audit,
    Begin,
    Collect,
    Compute,
    Done,
    Draw,
    Drawn,
    Durable,
    Finish,
    Hurry,
    MakeDurable,
    Play,
    RunOrder,
    Save,
    Settle,
    Stop,
    TakeCheckpoint,
)

Choose = Callable[[list[RunOrder]], int]


def history(run: RunMachine, choose: Choose = lambda under_way: 0) -> list[RunOrder | Done]:
    """Orders and their ends, each order ended when ``choose`` picks it from those under way."""
    seen: list[RunOrder | Done] = []
    under_way = run.step(Begin())
    seen += under_way
    while under_way:
        done = Done(under_way.pop(choose(under_way)))
        fresh = run.step(done)
        seen += [done, *fresh]
        under_way += fresh
    return seen


def putting_off(kind: type) -> Choose:
    """End orders of a kind only where no other is under way."""

    def choose(under_way: list[RunOrder]) -> int:
        others = [place for place, order in enumerate(under_way) if not isinstance(order, kind)]
        return others[0] if others else 0

    return choose


def told(seen: list[RunOrder | Done], *kinds: type) -> list[str]:
    """Orders of some kinds, as ``play 1``."""
    orders = [order for order in seen if isinstance(order, kinds)]
    numbers = [next(iter(getattr(order, name) for name in order.__slots__)) for order in orders]
    return [
        f"{type(order).__name__.lower()} {number}"
        for order, number in zip(orders, numbers, strict=True)
    ]


def test_a_run_that_collects_ahead_plays_with_the_parameters_before_an_update() -> None:
    seen = history(RunMachine(Program(iterations=2, lag=1)))
    assert told(seen, Play, Collect, Draw, Compute, Apply) == [
        *("play 0", "collect 0", "draw 0", "play 1", "compute 0", "apply 0"),
        *("collect 1", "draw 1", "compute 1", "apply 1"),
    ]


def test_a_run_that_does_not_collect_ahead_plays_with_the_newest_parameters() -> None:
    seen = history(RunMachine(Program(iterations=2)))
    assert told(seen, Play, Apply) == ["play 0", "apply 0", "play 1", "apply 1"]


def test_an_update_waits_for_the_play_that_acts_with_the_parameters_before() -> None:
    seen = history(RunMachine(Program(iterations=2, lag=1)), putting_off(Play))
    assert seen.index(Done(Compute(0))) < seen.index(Done(Play(1))) < seen.index(Apply(0))


def test_an_iteration_runs_while_the_one_before_is_stored_and_no_further() -> None:
    seen = history(RunMachine(Program(iterations=3)), putting_off(MakeDurable))
    assert seen.index(Done(Apply(1))) < seen.index(Done(MakeDurable(0))) < seen.index(Settle(2))


def test_a_run_may_be_ahead_of_its_store_and_what_is_stored_together_counts_together() -> None:
    run = RunMachine(Program(iterations=4, ahead=2))
    under_way = run.step(Begin())
    hurried = False
    while len(under_way) > 1 or not isinstance(under_way[0], MakeDurable):
        hurried = hurried or Hurry(3) in under_way
        place = putting_off(MakeDurable)(under_way)
        under_way += run.step(Done(under_way.pop(place)))
    assert (run.applied, under_way) == (3, [MakeDurable(0)])
    assert hurried
    assert run.step(Durable(2)) == []
    assert set(run.step(Done(MakeDurable(0)))) >= {MakeDurable(2), Settle(3)}
    assert run.stored == 2


def test_what_is_to_be_stored_before_a_run_goes_on_does_not_wait() -> None:
    seen = history(RunMachine(Program(iterations=3, ahead=9, checkpoint_every=2)))
    assert told(seen, Hurry) == ["hurry 2", "hurry 3"]
    assert told(history(RunMachine(Program(iterations=3, checkpoint_every=2))), Hurry) == []


@pytest.mark.parametrize(("lag", "ahead"), [(0, []), (1, ["play 1"])])
def test_a_repeated_iteration_plays_what_was_played_before_its_updates_are_applied(
    lag: int, ahead: list[str]
) -> None:
    run = RunMachine(Program(iterations=2, lag=lag), known=1)
    seen = history(run, lambda under_way: len(under_way) - 1)
    begun = told(seen, Play, Collect, Draw, Compute, Apply, MakeDurable)
    assert begun[: begun.index("apply 0") + 1] == ["collect 0", *ahead, "apply 0"]
    assert "makedurable 0" not in begun
    if ahead:
        assert seen.index(Done(Play(1))) < seen.index(Apply(0))


def test_updates_over_one_collection_draw_from_it_in_turn() -> None:
    seen = history(RunMachine(Program(iterations=4, updates=2, lag=1)))
    assert told(seen, Play, Collect, Draw, Apply) == [
        *("play 0", "collect 0", "draw 0", "play 1", "apply 0", "draw 1", "apply 1"),
        *("collect 1", "draw 2", "apply 2", "draw 3", "apply 3"),
    ]


def test_a_minibatch_that_the_table_holds_is_computed_beside_its_collection() -> None:
    run = RunMachine(Program(iterations=1))
    orders = run.step(Begin())
    while Collect(0) not in orders:
        orders = [fresh for order in orders for fresh in run.step(Done(order))]
    assert run.step(Drawn(0)) == [Audit(0)]
    assert run.step(Done(Audit(0))) == [Compute(0)]
    assert run.step(Done(Compute(0))) == []
    assert run.step(Done(Collect(0))) == [Apply(0)]


programs = st.builds(
    Program,
    iterations=st.integers(1, 7),
    updates=st.integers(1, 3),
    lag=st.integers(0, 2),
    ahead=st.integers(1, 3),
    checkpoint_every=st.integers(0, 3),
)


@given(program=programs, data=st.data())
def test_whatever_is_done_first_the_run_ends_with_the_same_updates_and_stores_each_once(
    program: Program, data: st.DataObject
) -> None:
    applied = data.draw(st.integers(0, program.iterations)) // program.updates * program.updates
    known = data.draw(st.integers(applied, program.iterations))
    run = RunMachine(program, applied=applied, known=known)
    seen = history(run, lambda under_way: data.draw(st.integers(0, len(under_way) - 1)))
    assert run.finished
    assert len(set(seen)) == len(seen)
    numbers = range(applied, program.iterations)
    assert told(seen, Apply) == [f"apply {number}" for number in numbers]
    fresh = [number for number in numbers if number >= known]
    assert told(seen, MakeDurable) == [f"makedurable {number}" for number in fresh]
    for number in numbers:
        collection, step = program.position(number)
        applying = seen.index(Apply(number))
        assert seen.index(Done(Collect(collection))) < applying
        plays = [order for order in seen[:applying] if isinstance(order, Play)]
        assert all(Done(play) in seen[:applying] for play in plays)
        acting = max(0, collection - program.lag) * program.updates
        if step == 0 and Play(collection) in seen and collection > program.position(applied)[0]:
            before = {
                order.iteration
                for order in seen[: seen.index(Play(collection))]
                if isinstance(order, Apply)
            }
            assert max(before, default=acting - 1) == acting - 1
        if number >= known:
            assert seen.index(Done(Compute(number))) < applying
            assert seen.index(Done(Apply(number))) < seen.index(MakeDurable(number))
            following = Settle(number + 1 + program.ahead)
            if following in seen:
                assert seen.index(Done(MakeDurable(number))) < seen.index(following)
    for order in seen:
        if isinstance(order, TakeCheckpoint) and order.iterations > known:
            assert seen.index(Done(MakeDurable(order.iterations - 1))) < seen.index(order)
            assert program.position(order.iterations)[1] == 0 or order.iterations == (
                program.iterations
            )
    assert seen.index(Finish()) >= max(seen.index(Done(Audit(program.iterations))), len(seen) - 3)


@given(program=programs, data=st.data(), void=st.booleans())
def test_a_stopped_run_stores_what_is_applied_and_begins_nothing_more(
    program: Program, data: st.DataObject, *, void: bool
) -> None:
    def one_of(orders: list[RunOrder]) -> RunOrder:
        return orders.pop(data.draw(st.integers(0, len(orders) - 1)))

    run = RunMachine(program)
    under_way = run.step(Begin())
    for _ in range(data.draw(st.integers(0, 30))):
        if under_way:
            under_way += run.step(Done(one_of(under_way)))
    firm: list[RunOrder] = [
        order
        for order in under_way
        if isinstance(order, (Apply, MakeDurable, Hurry, TakeCheckpoint))
    ]
    firm += run.step(Stop(void=void))
    while firm:
        saving = [order for order in firm if isinstance(order, TakeCheckpoint)]
        steps = [order for order in firm if not isinstance(order, Hurry)]
        assert not saving or steps == saving[:1]  # nothing steps the parameters that it saves
        fresh = run.step(Done(one_of(firm)))
        assert all(isinstance(order, (MakeDurable, Hurry, TakeCheckpoint)) for order in fresh)
        firm += fresh
    assert run.stored == run.applied


def test_a_stopped_run_is_not_checkpointed_while_an_update_steps_its_parameters() -> None:
    run = RunMachine(Program(iterations=3, checkpoint_every=2))
    under_way = run.step(Begin())
    while under_way != [Apply(1)]:
        place = putting_off(Apply)(under_way)
        under_way += run.step(Done(under_way.pop(place)))
    assert run.stored == 1
    assert run.step(Stop()) == []
    assert run.step(Done(Apply(1))) == [MakeDurable(1)]
    assert run.step(Done(MakeDurable(1))) == [TakeCheckpoint(2)]


def test_a_refused_store_is_not_tried_again_and_nothing_is_checkpointed() -> None:
    run = RunMachine(Program(iterations=3, checkpoint_every=1))
    orders = run.step(Begin())
    while not any(isinstance(order, MakeDurable) for order in orders):
        orders = [fresh for order in orders for fresh in run.step(Done(order))]
    assert TakeCheckpoint(1) not in orders
    assert run.step(Stop()) == []
    assert run.stored < run.applied


def continued(run: RunMachine, under_way: list[RunOrder]) -> list[RunOrder]:
    """Orders from here to the end, each ended as it comes."""
    seen = []
    while under_way:
        order = under_way.pop(0)
        seen.append(order)
        under_way += run.step(Done(order))
    return seen


def until(run: RunMachine, last: RunOrder) -> list[RunOrder]:
    """Execute a run up to an order; returns those that are under way then, this one first."""
    under_way = run.step(Begin())
    while under_way[0] != last:
        under_way += run.step(Done(under_way.pop(0)))
    return under_way


@pytest.mark.parametrize(("updates", "saved"), [(1, [4, 9]), (3, [6, 9])])
def test_a_checkpoint_that_is_asked_for_is_made_at_the_next_border_and_once(
    updates: int, saved: list[int]
) -> None:
    run = RunMachine(Program(iterations=9, updates=updates, checkpoint_every=1000))
    under_way = until(run, Compute(3))
    assert run.step(Save()) == []
    rest = continued(run, under_way)
    assert [each.iterations for each in rest if isinstance(each, TakeCheckpoint)] == saved
    assert run.saved == 9
    assert rest.index(Apply(3)) < rest.index(TakeCheckpoint(saved[0]))


def test_a_run_goes_on_or_ends_early_when_its_length_is_changed() -> None:
    for length in (2, 5):
        run = RunMachine(Program(iterations=3))
        under_way = until(run, Compute(1))
        assert run.least == 2
        run.step(Amend(length))
        applied = [each for each in continued(run, under_way) if isinstance(each, Apply)]
        assert applied == [Apply(iteration) for iteration in range(1, length)]
        assert run.finished


def test_a_run_cannot_end_before_a_collection_that_is_being_played() -> None:
    ahead = RunMachine(Program(iterations=9, lag=2))
    until(ahead, Compute(1))
    assert ahead.least == 4
    several = RunMachine(Program(iterations=9, updates=3))
    until(several, Compute(3))
    assert several.least == 6


def test_a_run_cannot_end_before_what_its_log_holds() -> None:
    repeating = RunMachine(Program(iterations=90), applied=12, known=50)
    repeating.step(Begin())
    assert repeating.least == 50


@pytest.mark.parametrize(("lag", "applied"), [(0, 9), (1, 8), (2, 7)])
def test_a_run_is_lengthened_only_while_a_longer_one_would_have_had_its_orders(
    lag: int, applied: int
) -> None:
    run = RunMachine(Program(iterations=9, lag=lag, checkpoint_every=4))
    under_way, extensible = run.step(Begin()), dict[int, bool]()
    while under_way:
        extensible.setdefault(run.applied, run.extensible)
        under_way += run.step(Done(under_way.pop(0)))
    assert [at for at, possible in extensible.items() if possible] == [*range(applied)]
