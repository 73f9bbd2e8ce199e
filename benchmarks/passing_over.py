"""A controller that gives the keyed stragglers of an iteration no assignment."""

from fullrank.rounds.round import Round
from fullrank.stragglers import FixedK

DELAY_S, LEARNERS, SEED = 1.0, 15, 0


def pass_over(k: int) -> None:
    """Skip the ``k`` stragglers of each iteration in this process, the controller's."""
    from fullrank_controller.rounds.round_runner import Gathering

    assign = Gathering._assign
    stragglers = FixedK(k=k, delay_s=DELAY_S)

    async def assign_to_others(self: Gathering, rows: list[int]) -> None:
        opened: Round = self._round
        delays = stragglers.delays(seed=SEED, iteration=opened.iteration, learners=LEARNERS)
        await assign(self, [row for row in rows if not delays[self._deal.holders[row].learner]])

    Gathering._assign = assign_to_others  # type: ignore[method-assign]
