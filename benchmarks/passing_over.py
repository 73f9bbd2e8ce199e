"""A controller that gives the keyed stragglers of an iteration no assignment."""

from collections.abc import Sequence

from fullrank.stragglers import FixedK

DELAY_S, LEARNERS, SEED = 1.0, 15, 0


def pass_over(k: int) -> None:
    """Skip the ``k`` stragglers of each iteration in this process, the controller's."""
    from fullrank_controller.rounds.dispatcher import Dispatcher

    assign = Dispatcher.assign
    stragglers = FixedK(k=k, delay_s=DELAY_S)

    async def assign_to_others(self: Dispatcher, rows: Sequence[int]) -> None:
        iteration, holders = self._opened.round.iteration, self._opened.assignment.holders
        delays = stragglers.delays(seed=SEED, iteration=iteration, learners=LEARNERS)
        await assign(self, [row for row in rows if not delays[holders[row].learner]])

    Dispatcher.assign = assign_to_others  # type: ignore[method-assign]
