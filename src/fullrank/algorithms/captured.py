"""Gradients by autograd that stay on their device: on CUDA one graph computes all units.

The graph has the forward and backward passes that ``AutogradGradients`` launches for each unit, and
seals the updates. Units share no operation, so a unit has the bits that it has alone. Its rows are
laid into few numbers of rows, which depend on the unit alone; rows of padding add exact zeros.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import MISSING, fields
from functools import cache, partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from fullrank.algorithms.autograd import Losses, gradient_of
from fullrank.algorithms.groups import Networks
from fullrank.algorithms.on_policy import GroupMembers, Steps, WholeMinibatch
from fullrank.algorithms.problem import Problem
from fullrank.algorithms.trajectories import SCALE, Trajectories, padded
from fullrank.algorithms.transitions import Draws
from fullrank.algorithms.updates import Entries, Statistics
from fullrank.codes.targets import LIMIT
from fullrank.common.rows import Rows
from fullrank.common.types import FloatArray, UnitIndex
from fullrank.networks.fused import kernels
from fullrank.networks.fused.cuda import Graphs
from fullrank.networks.fused.gradients import StayingGradients, encode
from fullrank.replay.episodes import EpisodeLayout, episodes_in

if TYPE_CHECKING:
    from fullrank.algorithms.action_values import ActionValues
    from fullrank.algorithms.ppo import PPO

FACTS = tuple(each.name for each in fields(WholeMinibatch) if each.default is MISSING)
"""Names of the facts of a whole minibatch."""

LEAST_ROWS = 16
"""Least number of rows of a unit on a device."""


Laid: TypeAlias = Callable[[UnitIndex], tuple[Tensor, Sequence[float]] | None]
"""Returns what a unit reads, in host memory: its rows, float32, and numbers beside them; None where
it has no rows."""

Load: TypeAlias = Callable[[tuple[int, ...], Tensor, Tensor], Any]
"""Makes the batch that losses read, of a group, and of rows and facts, float64, on the device."""


def laid_rows(rows: int, device: torch.device) -> int:
    """Return the number of rows into which those of a unit are laid, one of few on a device.

    >>> [laid_rows(rows, torch.device("cuda")) for rows in (3, 25, 64)]
    [16, 32, 64]
    """
    return rows if device.type == "cpu" else max(LEAST_ROWS, 1 << (rows - 1).bit_length())


class WholeThere(WholeMinibatch):
    """Facts of a minibatch on a device: as losses take them float32, those of R float64."""

    def shares(self, earns: Tensor, missed: Tensor) -> Statistics:
        """Return a unit's share of what tells of R, without the host, but with its bits."""
        count, mean, deviation = map(
            torch.as_tensor, (self.count, self.target_mean, self.target_deviation)
        )
        share, variance = earns.sum().double() / count.double(), deviation.square()
        variance = torch.where(variance > 0.0, variance, 1.0).float()
        return {
            "explained_variance": share.float() - missed.sum() / count / variance,
            "target_mean": share * mean,
            "target_deviation": share * deviation,
        }


class CapturedGradients(StayingGradients):
    """Gradients of losses that draw nothing, in graphs.

    Args:
        losses: Losses of a group, which ask nothing of the host.
        nets: Networks at the broadcast parameters.
        problem: Units and their sizes.
        lay: Lays what units read.
        load: Makes the batches of it.
        entries: Statistics that follow a gradient.
    """

    def __init__(
        self,
        losses: Losses,
        nets: Networks,
        problem: Problem,
        *,
        lay: Callable[[FloatArray], Laid],
        load: Load,
        entries: Entries,
    ) -> None:
        super().__init__(nets.parameters.groups[0].rows.online.device, kernels.DEFAULT)
        self._losses, self._nets, self._problem = losses, nets, problem
        self._lay, self._load, self._entries = lay, load, entries
        self._draws = Draws((), seed=0, key=(), device=self._device)
        self._graphs = Graphs(self._device)
        shape = len(problem.units), problem.vector_size
        self._sealed = torch.zeros(shape, device=self._device)

    def rows(
        self,
        batch: Rows,
        units: Sequence[UnitIndex],
        *,
        iteration: int,
        check_cancelled: Callable[[], None] = lambda: None,
    ) -> Iterator[tuple[UnitIndex, Tensor]]:
        """Compute u_i for each requested unit where it stays; see ``StayingGradients``."""
        lay, sizes = self._lay(np.asarray(batch)), self._problem.unit_sizes
        found = {unit: lay(unit) for unit in units}
        laid = {unit: own for unit, own in found.items() if own is not None}
        for unit in found.keys() - laid.keys():
            yield unit, torch.zeros(sizes[unit], device=self._device)
        # Units of equal sizes in one order, whatever was asked for: so there are few graphs. Rows
        # that several groups read are laid once.
        parts = {id(rows): rows for rows, _ in laid.values()}
        held = sorted(parts.values(), key=lambda rows: rows.shape)
        place_of = {id(rows): place for place, rows in enumerate(held)}
        form = {
            unit: (place_of[id(rows)], self._problem.units[unit].agents)
            for unit, (rows, _) in laid.items()
        }
        order = sorted(laid, key=lambda unit: form[unit])
        if not order:
            return
        forms, shapes = tuple(form[unit] for unit in order), tuple(rows.shape for rows in held)

        def draw() -> Tensor:
            scales = (SCALE * self._nets.factor_of(agents[0]) for _, agents in forms)
            facts = [(scale, *laid[unit][1]) for scale, unit in zip(scales, order, strict=True)]
            words = torch.tensor(facts, dtype=torch.float64).flatten().view(torch.float32)
            return torch.cat([words, *(rows.flatten() for rows in held)])

        where = self._nets.parameters.groups[0].rows.online
        with self.kernel.selected(), torch.cuda.device_of(where):  # type: ignore[no-untyped-call]
            update = partial(self._update, forms, shapes)
            self._graphs.run((forms, shapes), update, draw=draw, check_cancelled=check_cancelled)
        for place, unit in enumerate(order):
            yield unit, self._sealed[place, : sizes[unit]]

    def fingerprint(self) -> str:
        """Describe the computation: rows are padded, which products may show."""
        return f"{super().fingerprint()}; rows of 2^k from {LEAST_ROWS}"

    def _update(
        self,
        forms: Sequence[tuple[int, tuple[int, ...]]],
        shapes: Sequence[torch.Size],
        draw: Callable[[], Tensor],
        check_cancelled: Callable[[], None],
    ) -> None:
        """Compute the updates of units, given the places of their rows and their groups."""
        flat, sizes = draw(), [shape.numel() for shape in shapes]
        words, *parts = torch.split(flat, [len(flat) - sum(sizes), *sizes])
        every = torch.unflatten(words.view(torch.float64), 0, (len(forms), -1))
        for place, (rows, agents) in enumerate(forms):
            check_cancelled()
            facts = every[place]
            # A copy begins where products and sums of vectors take it, wherever the rows lie.
            own = parts[rows].view(shapes[rows]).clone()
            batch = self._load(agents, own, facts[1:])
            losses, statistics = self._losses(agents, self._nets, batch, self._draws)
            with torch.autograd.set_multithreading_enabled(False):  # a thread captures its own work
                gradient = gradient_of(losses, self._nets, agents)
            gradient = gradient.mul_(facts[0].float()).clamp_(-LIMIT, LIMIT)[None]
            told = [torch.as_tensor(statistics[name]) for name in self._entries.names]
            shares = encode(torch.stack([each.detach().double() for each in told]))[None]
            end = gradient.shape[1] + self._entries.size
            self._entries.seal(gradient, shares, out=self._sealed[place : place + 1, :end])


def of_steps(
    learner: "PPO", problem: Problem, members: Sequence[GroupMembers], nets: Networks
) -> CapturedGradients:
    """Build the learner's role of an on-policy team whose networks have no memory."""
    groups, layout = {own.agents: own for own in members}, problem.episodes
    device = nets.parameters.groups[0].rows.online.device
    assert layout is not None  # on-policy teams learn from episodes

    def lay(rows: FloatArray) -> Laid:
        lengths = [len(rows[place]) - 1 for place in episodes_in(rows, layout.length)]
        played, starts = rows[rows[:, layout.length] == 0.0], [*accumulate(lengths, initial=0)]
        every = Steps([played], layout, device=torch.device("cpu"))

        @cache
        def facts_of(agents: tuple[int, ...]) -> list[float]:
            whole = WholeMinibatch.of_steps(every, agents)
            scale = learner.scale(groups[agents], nets, whole)
            return [float(getattr(whole, name)) for name in FACTS] + [*scale]

        @cache
        def rows_of(part: int) -> Tensor | None:
            ends = starts[learner.parts[part].start : learner.parts[part].stop + 1]
            if len(ends) < 2:
                return None
            count = ends[-1] - ends[0]
            laid = np.zeros((laid_rows(count, device), layout.row_size + 1), np.float32)
            laid[:count, :-1], laid[:count, -1] = played[ends[0] : ends[-1]], 1.0
            return torch.from_numpy(laid)

        def laid_of(unit: UnitIndex) -> tuple[Tensor, Sequence[float]] | None:
            agents, part = problem.units[unit]
            own = rows_of(part)
            return None if own is None else (own, facts_of(agents))

        return laid_of

    def load(agents: tuple[int, ...], rows: Tensor, facts: Tensor) -> tuple[Steps, WholeMinibatch]:
        *numbers, mean, deviation = facts.float().unbind()
        named: dict[str, Any] = dict(zip(FACTS, numbers, strict=True))
        named |= zip(FACTS[-2:], facts[-4:-2].unbind(), strict=True)  # those of R
        return Steps(rows, layout, device=device), WholeThere(**named, scale=(mean, deviation))

    return CapturedGradients(
        lambda agents, nets, batch, draws: learner.losses(groups[agents], nets, *batch),
        nets,
        problem,
        lay=lay,
        load=load,
        entries=learner.entries,
    )


def of_trajectories(
    learner: "ActionValues", problem: Problem, nets: Networks, layout: EpisodeLayout
) -> CapturedGradients:
    """Build the learner's role of a team of action values whose networks have no memory."""
    device = nets.parameters.groups[0].rows.online.device

    def lay(rows: FloatArray) -> Laid:
        places = episodes_in(rows, layout.length)

        def laid_of(unit: UnitIndex) -> tuple[Tensor, Sequence[float]] | None:
            part = learner.parts[unit]
            if not (own := [rows[place] for place in places[part.start : part.stop]]):
                return None
            steps = laid_rows(max(map(len, own)), device) - 1
            return padded(own, layout, steps=steps), [len(rows) - len(places)]

        return laid_of

    return CapturedGradients(
        lambda agents, nets, batch, draws: learner.losses(nets, batch),
        nets,
        problem,
        lay=lay,
        load=lambda agents, rows, facts: Trajectories(rows, layout, steps=facts.float()[0]),
        entries=learner.entries,
    )
