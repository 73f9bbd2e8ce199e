"""Gradients of value-based teams by hand-written passes over many units at once.

The loss is that of ``fullrank.algorithms.values``; tests compare it with its autograd. Units are
computed together, sorted by the length of their episodes; a unit takes part until its longest
episode ends. No bit depends on company, order, threads or padding: see docs/adr/0043.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import torch
from torch import Tensor

from fullrank.algorithms.groups import Networks
from fullrank.algorithms.trajectories import (
    ENTRIES,
    SCALE,
    Trajectories,
    best_values,
    chosen_values,
    padded,
    shares_by_unit,
    shares_of,
)
from fullrank.codes.targets import LIMIT
from fullrank.common.rows import Rows
from fullrank.common.types import FloatArray, UnitIndex
from fullrank.networks.cards.recurrent import RecurrentUnitsOnCards
from fullrank.networks.fused import kernels
from fullrank.networks.fused.cuda import Graphs, sent, stays_on
from fullrank.networks.fused.gradients import StayingGradients, encode
from fullrank.networks.fused.mixing import Mixing
from fullrank.networks.fused.products import Packing, least_units, takes_kernels, width_of
from fullrank.networks.fused.recurrent import CHUNK, RecurrentUnits
from fullrank.networks.value_networks import RecurrentAgent
from fullrank.replay.episodes import EpisodeLayout, episodes_in

if TYPE_CHECKING:
    from fullrank.algorithms.values import ValueLearner

MakeMixing: TypeAlias = Callable[[int, int], Mixing]
"""Makes the passes of the mixing for a number of units, and of rows of a unit in a chunk."""

MOST_ENTRIES = 2**26
"""Most entries in the buffers of units that are computed together."""


class FusedValueGradients(StayingGradients):
    """Gradients of the loss by micro-batch.

    Args:
        learner: States the loss.
        mixing: Makes the passes of the mixing.
        nets: Networks at the broadcast parameters.
        layout: Layout of a row.
        device: Device of the parameters.
    """

    def __init__(
        self,
        learner: "ValueLearner",
        mixing: MakeMixing,
        nets: Networks,
        layout: EpisodeLayout,
        *,
        device: torch.device,
    ) -> None:
        super().__init__(device, kernels.TRITON if takes_kernels(device) else kernels.DEFAULT)
        self._learner, self._mixing = learner, mixing
        self._nets, self._layout = nets, layout
        network = nets.agent[0]
        assert isinstance(network, RecurrentAgent)
        self._network, self._width = network, learner.micro_batches
        self._passes: _Passes | None = None

    def rows(
        self,
        batch: Rows,
        units: Sequence[UnitIndex],
        *,
        iteration: int,
        check_cancelled: Callable[[], None] = lambda: None,
    ) -> Iterator[tuple[UnitIndex, Tensor]]:
        """Compute u_i for each requested unit where it stays; see ``StayingGradients``."""
        sample = self._learner.minibatch(np.asarray(batch), self._layout)
        places = episodes_in(sample, self._layout.length)
        steps, parts = len(sample) - len(places), self._learner.parts
        episodes = {
            unit: [sample[place] for place in places[parts[unit].start : parts[unit].stop]]
            for unit in units
        }
        size = self._nets.parameters.groups[0].size + ENTRIES.size
        for unit in units:
            if not episodes[unit]:
                yield unit, torch.zeros(size, device=self._device)
        waiting = sorted(
            (unit for unit in units if episodes[unit]),
            key=lambda unit: -max(map(len, episodes[unit])),
        )
        while waiting:
            check_cancelled()
            online = self._nets.parameters.groups[0].rows.online
            with self.kernel.active(), torch.cuda.device_of(online):  # type: ignore[no-untyped-call]
                passes = self._passes_for(max(map(len, episodes[waiting[0]])))
                chosen, waiting = waiting[: passes.units], waiting[passes.units :]
                own = [episodes[unit] for unit in chosen]
                updates = passes.updates(own, steps, check_cancelled)
            yield from zip(chosen, updates, strict=True)

    def _passes_for(self, longest: int) -> "_Passes":
        """Return passes whose buffers can hold units with episodes of ``longest`` rows."""
        passes, count = self._passes, len(self._learner.parts[0]) * self._layout.agents
        entries = 10 * width_of(self._network.fc2.in_features) * count * (longest + 4 * CHUNK)
        self._width = max(min(self._width, MOST_ENTRIES // entries), 1)
        width = max(self._width, least_units(self._device))
        if passes is None or passes.units != width:
            passes = _Passes(
                self._learner,
                self._mixing,
                self._nets,
                self._layout,
                units=width,
                device=self._device,
            )
        self._passes = passes
        return passes


class _Passes:
    """Passes of the whole team for up to U units.

    On CUDA they are a graph for each number of units and of chunks, in all of which all units take
    part; nothing in it depends on the lengths of episodes.
    """

    def __init__(
        self,
        learner: "ValueLearner",
        mixing: MakeMixing,
        nets: Networks,
        layout: EpisodeLayout,
        *,
        units: int,
        device: torch.device,
    ) -> None:
        (self._group,) = nets.parameters.groups
        self._factor = partial(nets.parameters.factor, 0)
        self.units, self._layout, self._learner = units, layout, learner
        self._device, self._episodes = device, len(learner.parts[0])
        network = nets.agent[0]
        assert isinstance(network, RecurrentAgent)
        passes = RecurrentUnitsOnCards if takes_kernels(device) else RecurrentUnits
        self._agents = passes(
            network,
            self._group.networks["agent"].start,
            units=units,
            rows=self._episodes * layout.agents,
            device=device,
        )
        self._mixing = mixing(units, CHUNK * self._episodes)
        blocks = [*self._agents.blocks, *self._mixing.blocks]
        self._packing = Packing(blocks, units=units, device=device)
        self._identity = torch.eye(layout.agents, device=device)
        self._numbers = torch.zeros(2, device=device)
        self._sealed = torch.zeros(units, self._packing.size + ENTRIES.size, device=device)
        self._graphs = Graphs(device)

    def updates(
        self,
        episodes: Sequence[Sequence[FloatArray]],
        steps: int,
        check_cancelled: Callable[[], None],
    ) -> Tensor:
        """Compute the updates of units, longest first.

        Args:
            episodes: Packed steps of each episode of each unit.
            steps: T, number of steps of all episodes of the sample.
            check_cancelled: Called between stages.

        Returns:
            Shape (units, entries of an update); the next call overwrites them.
        """
        lengths = [max(map(len, own)) - 1 for own in episodes]
        lengths += [0] * (least_units(self._device) - len(lengths))
        if stays_on(self._device):  # few shapes, whatever the lengths
            lengths = [-(-(lengths[0] + 1) // CHUNK) * CHUNK - 1] * len(lengths)
        self._numbers.copy_(
            sent(torch.tensor([float(steps), SCALE * self._factor()]), self._device)
        )
        self._graphs.run(
            tuple(lengths),
            partial(self._update, lengths, len(episodes)),
            draw=partial(self._load, episodes, lengths),
            check_cancelled=check_cancelled,
        )
        return self._sealed[: len(episodes)]

    def _update(
        self,
        lengths: Sequence[int],
        count: int,
        load: Callable[[], Tensor],
        check_cancelled: Callable[[], None],
    ) -> None:
        """Compute the updates of ``count`` units with episodes of up to these lengths."""
        steps, scale = self._numbers
        batch = Trajectories(load(), self._layout, steps=steps)
        rows = self._group.rows
        packed = self._packing.pack(torch.cat([rows.online, rows.target]))
        cut = len(self._agents.blocks)
        active = [
            max(sum(length >= start for length in lengths), least_units(self._device))
            for start in range(0, lengths[0] + 1, CHUNK)
        ]
        self._agents.begin(packed[:cut], len(active))
        self._mixing.begin(packed[cut:])
        chosen, best = self._values(batch, active, check_cancelled)
        expected = self._targets(batch, best, active, check_cancelled)
        weight = 2.0 * batch.valid[..., None] / (steps * expected.shape[2])
        value = torch.zeros_like(expected)
        for chunk in reversed(range(-(-lengths[0] // CHUNK))):
            check_cancelled()
            gradient = self._error(
                batch, chosen, expected, weight, chunk, value=value, units=active[chunk]
            )
            valid_steps = min(CHUNK, lengths[0] - chunk * CHUNK)
            self._agents.backward(chunk, gradient, steps=valid_steps)
        check_cancelled()
        gradients = [*self._agents.gradients, *self._mixing.gradients]
        updates = self._packing.unpack([part[:count] for part in gradients])
        updates.mul_(scale).clamp_(-LIMIT, LIMIT)
        entries = self._entries(batch, value, expected, lengths)
        ENTRIES.seal(updates, entries[:count], out=self._sealed[:count])

    def _entries(
        self, batch: Trajectories, value: Tensor, expected: Tensor, lengths: Sequence[int]
    ) -> Tensor:
        """Encode each unit's share of the statistics, shape (units, entries)."""
        if stays_on(self._device):
            return encode(shares_by_unit(value, expected, batch, units=len(lengths)))
        arrays = [part.numpy() for part in (value, expected, batch.valid)]
        shares = [
            shares_of(
                *(array[:length, unit * self._episodes :][:, : self._episodes] for array in arrays),
                steps=int(batch.steps),
                agents=self._layout.agents,
            )
            for unit, length in enumerate(lengths)
        ]
        return torch.from_numpy(np.stack([ENTRIES.of(share) for share in shares]))

    def _load(self, episodes: Sequence[Sequence[FloatArray]], lengths: Sequence[int]) -> Tensor:
        """Lay the episodes of all units side by side, each filled up with empty ones to K."""
        empty = np.empty((0, self._layout.row_size), np.float32)
        flat = [
            episode
            for own in (*episodes, *[[]] * (len(lengths) - len(episodes)))
            for episode in (*own, *[empty] * (self._episodes - len(own)))
        ]
        return padded(flat, self._layout, steps=lengths[0])

    def _values(
        self,
        batch: Trajectories,
        active: Sequence[int],
        check_cancelled: Callable[[], None],
    ) -> tuple[Tensor, Tensor]:
        """Compute the values of the chosen and of the best actions, shape (L + 1, episodes, n)."""
        total, count, agents, choices = batch.available.shape
        parts = [batch.observation]
        if self._learner.last_action:
            parts.append(batch.last_action)
        chosen, best = batch.observation.new_zeros(2, total, count, agents)
        for chunk, units in enumerate(active):
            check_cancelled()
            start, own = chunk * CHUNK, units * self._episodes
            span = slice(start, min(start + CHUNK, total))
            steps = span.stop - start
            inputs = torch.unflatten(self._agents.inputs_of(chunk, units), 2, (-1, agents))
            inputs[:, steps:] = 0.0
            inputs = inputs[:, :steps]
            first = 0
            for part in parts:
                last = first + part.shape[3]
                inputs[..., first:last] = self._by_unit(part[span, :own], units)
                first = last
            if self._learner.identity:
                inputs[..., first:] = self._identity
            computed = self._agents.forward(chunk, units=units, steps=steps)
            computed = torch.unflatten(computed, 2, (own, agents))[:, :steps, ..., :choices]
            online, target = computed
            action = batch.action[span, :own]
            chosen[span, :own][: len(action)] = chosen_values(online[: len(action)], action)
            judge = online if self._learner.double else target
            best[span, :own] = best_values(target, judge, batch.available[span, :own])
        return chosen, best

    def _by_unit(self, part: Tensor, units: int) -> Tensor:
        """View (steps, episodes, ...) as (units, steps, K, ...)."""
        return torch.unflatten(part, 1, (units, -1)).transpose(0, 1)

    def _chunk(self, part: Tensor, chunk: int, units: int, out: Tensor | None = None) -> Tensor:
        """Copy a chunk of (steps, episodes, size), padded: shape (units, 16 K, size)."""
        own = part[chunk * CHUNK : (chunk + 1) * CHUNK, : units * self._episodes]
        if out is None:
            out = part.new_empty(units, CHUNK * self._episodes, part.shape[2])
        steps = torch.unflatten(out, 1, (CHUNK, -1))
        steps[:, : len(own)] = self._by_unit(own, units)
        if len(own) < CHUNK:
            steps[:, len(own) :] = 0
        return out

    def _set_state(self, state: Tensor, chunk: int, units: int) -> None:
        """Give the mixing the states of a chunk."""
        if (out := self._mixing.state(units)) is not None:
            self._chunk(state, chunk, units, out)

    def _targets(
        self,
        batch: Trajectories,
        best: Tensor,
        active: Sequence[int],
        check_cancelled: Callable[[], None],
    ) -> Tensor:
        """Compute G, (L, episodes, .)."""
        next_value: Tensor | None = None
        for chunk, units in enumerate(active[: -(-(len(best) - 1) // CHUNK)]):
            check_cancelled()
            self._set_state(batch.state[1:], chunk, units)
            mixed = self._mixing.forward(self._chunk(best[1:], chunk, units), target=True)
            if next_value is None:
                next_value = best.new_zeros(len(best) - 1, best.shape[1], mixed.shape[2])
            self._put(mixed, next_value, chunk)
        assert next_value is not None
        return self._learner.returns(next_value, batch)

    def _put(self, mixed: Tensor, out: Tensor, chunk: int) -> None:
        """Copy learned values of a chunk, (units, 16 K, values), into (L, episodes, values)."""
        steps = out[chunk * CHUNK : (chunk + 1) * CHUNK]
        own = torch.unflatten(mixed, 1, (CHUNK, self._episodes)).transpose(0, 1)
        torch.unflatten(steps, 1, (-1, self._episodes))[:, : len(mixed)] = own[: len(steps)]

    def _error(
        self,
        batch: Trajectories,
        chosen: Tensor,
        expected: Tensor,
        weight: Tensor,
        chunk: int,
        *,
        value: Tensor,
        units: int,
    ) -> Tensor:
        """Return the gradient of a chunk at the values of actions, (16, units x R, actions).

        The chunk's Q_t are written to ``value``, shape (L, episodes, values).
        """
        self._set_state(batch.state[:-1], chunk, units)
        mixed = self._mixing.forward(self._chunk(chosen[:-1], chunk, units), target=False)
        self._put(mixed, value, chunk)
        error = mixed.sub_(self._chunk(expected, chunk, units))
        error.mul_(self._chunk(weight, chunk, units))
        gradient = torch.unflatten(self._mixing.backward(error), 1, (CHUNK, self._episodes))
        action = batch.action[chunk * CHUNK : (chunk + 1) * CHUNK, : units * self._episodes]
        gradient = gradient.transpose(0, 1).flatten(1, 2)[: len(action)] * (action >= 0)
        out = self._agents.gradient_buffer(units)
        rows = torch.unflatten(out, 1, (-1, self._layout.agents))[: len(action)]
        rows.scatter_(3, action.clamp_min(0).unsqueeze(3), gradient.unsqueeze(3))
        return out
