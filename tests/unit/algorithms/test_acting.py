"""What teams of action values play: the values that are learned, of the same inputs."""

import numpy as np
import pytest
import torch
from torch import Tensor

from fullrank.algorithms.trajectories import Now, Trajectories, ValueActor
from fullrank.algorithms.vdn import VDN
from fullrank.common.errors import ConfigError
from fullrank.replay.episodes import episodes_in

from .test_values import ENVIRONMENT, nets_of


class Farsighted(VDN):
    """Has inputs of its own."""

    def inputs(self, seen: Trajectories | Now) -> Tensor:
        """Observations twice as large, and the rest as it is."""
        found = VDN.inputs(self, seen)
        found[..., : seen.observation.shape[-1]] *= 2
        return found


@pytest.mark.parametrize(
    ("kind", "recurrent"), [(VDN, True), (VDN, False), (Farsighted, True), (Farsighted, False)]
)
def test_acting_step_by_step_computes_the_values_that_are_learned(
    kind: type[VDN], recurrent: bool
) -> None:
    """The recurrent state of the actor is that of the loss; without one, steps stand alone."""
    built = kind(recurrent=recurrent)
    algorithm = built.make(ENVIRONMENT, seed=0, device="cpu")
    actor, layout = algorithm.actor, algorithm.problem.episodes
    assert isinstance(actor, ValueActor)
    assert layout is not None
    rows = layout.synthetic(np.random.default_rng(5), 1)
    (place,) = episodes_in(rows, layout.length)
    batch = Trajectories.of([rows[place]], layout, device=torch.device("cpu"))
    with torch.no_grad():
        values = built.values(nets_of(algorithm).agent[0], batch)
    state, last = actor.memory(1)
    for step in range(len(rows)):
        computed, state = actor._values(rows[[step], layout.observation], (state, last))
        np.testing.assert_allclose(computed, values[step].numpy(), atol=1e-6)
        last = np.eye(5, dtype=np.float32)[rows[[step], layout.action].astype(int)]
        if not recurrent:
            state = np.ones_like(state)


def test_policies_with_inputs_of_their_own_are_not_exported() -> None:
    actor = Farsighted().make(ENVIRONMENT, seed=0, device="cpu").actor
    with pytest.raises(ConfigError, match=r"with inputs of their own are not exported; use the"):
        actor.policy(0)
