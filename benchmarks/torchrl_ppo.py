"""TorchRL's PPO loss with networks that agents share: the peer of IPPO in ``one_device.py``.

``ClipPPOLoss`` with a clipped value and normalised advantages, which are given, Adam and a clipped
global norm, on a minibatch that lies on the default device.
"""

from collections.abc import Callable
from math import log

import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torch.distributions import Categorical
from torchrl.modules import ProbabilisticActor
from torchrl.objectives import ClipPPOLoss

from torchrl_maddpg import OBSERVATION, network


def make_update(
    *, agents: int, inputs: int, actions: int, rows: int, hidden: int
) -> Callable[[], None]:
    """Return one update on a random minibatch of the default device."""
    torch.manual_seed(0)

    def module(outputs: int, name: str) -> TensorDictModule:
        own = network(agents, inputs, outputs, hidden, shared=True)
        return TensorDictModule(own, in_keys=[OBSERVATION], out_keys=[("agents", name)])

    keys = {name: ("agents", name) for name in ("action", "advantage", "value_target", "value")}
    actor = ProbabilisticActor(
        module=module(actions, "logits"),
        in_keys=[("agents", "logits")],
        out_keys=[keys["action"]],
        distribution_class=Categorical,
        return_log_prob=True,
        log_prob_key=("agents", "sample_log_prob"),
    )
    loss = ClipPPOLoss(
        actor,
        module(1, "value"),
        clip_epsilon=0.2,
        entropy_coeff=0.01,
        critic_coeff=0.5,
        loss_critic_type="l2",
        normalize_advantage=True,
        clip_value=0.2,
    ).to(torch.get_default_device())
    loss.set_keys(**keys, sample_log_prob=("agents", "sample_log_prob"))
    shape = (rows, agents)
    parts = {
        "observation": torch.randn(*shape, inputs),
        "action": torch.randint(actions, shape),
        "sample_log_prob": torch.randn(shape) / 10 - log(actions),
        "value": torch.randn(*shape, 1),
        "advantage": torch.randn(*shape, 1),
        "value_target": torch.randn(*shape, 1),
    }
    batch = TensorDict({"agents": TensorDict(parts, batch_size=shape)}, batch_size=rows)
    optimiser = torch.optim.Adam(loss.parameters(), lr=5e-4, eps=1e-5)

    def update() -> None:
        optimiser.zero_grad()
        losses = loss(batch)
        sum(each for name, each in losses.items() if name.startswith("loss_")).backward()
        torch.nn.utils.clip_grad_norm_(loss.parameters(), 10.0)
        optimiser.step()

    return update
