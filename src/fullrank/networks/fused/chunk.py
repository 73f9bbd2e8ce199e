"""Units of one cohort that are computed together."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from fullrank.networks.fused.cohort import Cohort
from fullrank.networks.fused.picked import Picked, consecutive
from fullrank.networks.fused.sight import MeanField, Sight
from fullrank.networks.fused.workspace import Workspace

ENTRIES = {"cpu": 280_000, "cuda": 2**25}
"""Entries of one activation, units x hidden x columns, of which a core's cache holds several."""

KEPT = 256
"""Chunks kept at most: learners' rows change only with the code."""


class Chunk:
    """Everything about the chosen units that stays the same from iteration to iteration.

    Making a view costs as much as a small product, so all of them are made once.

    Attributes:
        cohort: Of all its units.
        agents: The units, one of them possibly repeated.
        space: Buffers of this width, shared with other chunks.
        critic, policy, target_critic, target_policy: Their weights; ``affine`` of mean-field
            critics as ``prepare`` spreads it.
        agent_rows: Rows of the units in what all agents share.
        action_rows: Rows of own actions in a joint input, flat.
        action_columns: Own actions as columns of the critics' first layer, to gather with.
        local: Whether the critics see own observations and some actions only.
    """

    def __init__(self, cohort: Cohort, rows: tuple[int, ...], space: Workspace) -> None:
        self.cohort, self.space = cohort, space
        self.agents = tuple(cohort.agents[row] for row in rows)
        self._index = torch.tensor(rows, device=cohort.rows.online.device)
        self._copied = not consecutive(rows)
        online, target = (
            space.parameters
            if self._copied
            else (
                part[rows[0] : rows[0] + len(rows)]
                for part in (cohort.rows.online, cohort.rows.target)
            )
        )
        self.critic, self.policy = cohort.critic.weights(online), cohort.policy.weights(online)
        self.target_critic = cohort.critic.weights(target)
        self.target_policy = cohort.policy.weights(target)
        own_rows = cohort.observation_index[self._index].flatten()
        self._own_rows = Picked(own_rows.tolist(), online.device)
        actions = cohort.action_index[self._index]
        self.action_rows = Picked(actions.flatten().tolist(), online.device)
        self.agent_rows = Picked(self.agents, online.device)
        columns, self.local = actions, cohort.sight is Sight.OWN
        if self.local:
            self._critic_rows = cohort.critic_index[self._index].flatten()
            inputs = torch.arange(cohort.critic.inputs, device=online.device)
            own = slice(cohort.policy.inputs, cohort.policy.inputs + cohort.policy.outputs)
            columns = inputs[own].expand(len(rows), -1)
        self.action_columns = columns.unsqueeze(1).expand(-1, cohort.critic.hidden, -1)
        self._mean_field: MeanField | None = None
        if cohort.sight is Sight.MEAN_FIELD:
            self._mean_field = MeanField(cohort.layout, self.agents, online.device)
            self._tied = self.critic.affine, self.target_critic.affine
            critic, target_critic = space.spread
            self.critic = self.critic._replace(affine=critic)
            self.target_critic = self.target_critic._replace(affine=target_critic)

    def refresh(self) -> None:
        """Take the current parameters, where they are copied."""
        if self._copied:
            online, target = self.space.parameters
            torch.index_select(self.cohort.rows.online, 0, self._index, out=online)
            torch.index_select(self.cohort.rows.target, 0, self._index, out=target)

    def prepare(self) -> None:
        """Bring the critics' first layers into the form that products take; no gradient yet."""
        self.space.bias_gradient.zero_()
        if self._mean_field is not None:
            for tied, spread in zip(self._tied, self.space.spread, strict=True):
                self._mean_field.spread(tied, out=spread)
        torch.gather(self.critic.affine, 2, self.action_columns, out=self.space.action_weights)

    def clipped(self) -> Tensor:
        """The gradients in flat rows as the parameters', clipped variable by variable."""
        if self._mean_field is not None:
            self._mean_field.fold(self.space.affine_gradient, out=self.space.folded)
        self.space.clipper.clip()
        return self.space.gradient

    def own(self, joint: Tensor) -> Tensor:
        """Own observations out of a joint input, shape (units, own, columns)."""
        return self._own_rows.of(joint).view(len(self.agents), -1, joint.shape[1])

    def seen(self, joint: Tensor) -> Tensor:
        """What local critics see of a joint input, and ones, (units, inputs + 1, columns)."""
        flat = self.space.seen.view(-1, joint.shape[1])
        torch.index_select(joint, 0, self._critic_rows, out=flat)
        return self.space.seen


class Chunks:
    """Splits the units of a cohort into chunks, and keeps chunks and buffers for the next time."""

    def __init__(self, cohort: Cohort, *, clip_norm: float) -> None:
        self._cohort, self._clip_norm = cohort, clip_norm
        self._device = cohort.rows.online.device
        self._spaces: dict[tuple[int, int], Workspace] = {}
        self._chunks: dict[tuple[tuple[int, ...], int], Chunk] = {}

    def split(self, rows: Sequence[int], columns: int) -> Iterator[tuple[int, ...]]:
        """Cut rows into pieces that fit the cache, none narrower than the number of threads.

        A product of fewer matrices than threads is split inside a matrix, which changes its bits;
        so a narrow piece repeats its last row.
        """
        threads = torch.get_num_threads() if self._device.type == "cpu" else 1
        entries = self._cohort.critic.hidden * columns
        width = max(ENTRIES[self._device.type] // entries, threads, 1)
        for start in range(0, len(rows), width):
            chosen = tuple(rows[start : start + width])
            yield chosen + chosen[-1:] * (threads - len(chosen))

    def take(self, rows: tuple[int, ...], columns: int) -> Chunk:
        """The chunk of these rows, with the current parameters."""
        key = (rows, columns)
        if key not in self._chunks:
            if len(self._chunks) == KEPT:
                self._chunks.clear()
            self._chunks[key] = Chunk(self._cohort, rows, self._space(len(rows), columns))
        self._chunks[key].refresh()
        return self._chunks[key]

    def _space(self, units: int, columns: int) -> Workspace:
        key = (units, columns)
        if key not in self._spaces:
            self._spaces[key] = Workspace(
                self._cohort, units=units, columns=columns, clip_norm=self._clip_norm
            )
        return self._spaces[key]
