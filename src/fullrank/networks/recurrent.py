"""Networks of action values, shared by all agents: with a recurrent state, or without memory."""

from torch import Tensor, nn


class RecurrentAgent(nn.Module):
    """Values of all actions from a history: fc - ReLU - GRU - fc, as in [Rashid18, Appendix C].

    Args:
        inputs: Entries of one step's input: observation, last action, identity.
        hidden: Width of the hidden layer and of the recurrent state.
        actions: Number of actions.
    """

    def __init__(self, inputs: int, hidden: int, actions: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(inputs, hidden)
        self.rnn = nn.GRU(hidden, hidden)
        self.fc2 = nn.Linear(hidden, actions)

    def forward(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Return action values of each step, and the state after the last one.

        Args:
            inputs: Inputs of consecutive steps, shape (steps, rows, inputs).
            state: Recurrent state before the first step, shape (rows, hidden).

        Returns:
            Values, shape (steps, rows, actions), and the state, shape (rows, hidden).
        """
        states, last = self.trunk(inputs, state)
        return self.fc2(states), last

    def trunk(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Return the last layer's inputs, shape (steps, rows, hidden), and the last state."""
        states, last = self.rnn(self.fc1(inputs).relu(), state.unsqueeze(0))
        return states, last[0]


class FeedForwardAgent(nn.Module):
    """Values of all actions from the present input alone: fc - ReLU - fc - ReLU - fc.

    The recurrent agent with a linear layer in place of the GRU; its state stays as it is.

    Args:
        inputs: Entries of one step's input: observation, last action, identity.
        hidden: Width of both hidden layers, and of the unused state.
        actions: Number of actions.
    """

    def __init__(self, inputs: int, hidden: int, actions: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(inputs, hidden)
        self.rnn = nn.Linear(hidden, hidden)
        self.fc2 = nn.Linear(hidden, actions)

    def forward(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Return action values of each step, and the given state; see ``RecurrentAgent``."""
        hidden, state = self.trunk(inputs, state)
        return self.fc2(hidden), state

    def trunk(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Return the last layer's inputs, and the given state; see ``RecurrentAgent``."""
        return self.rnn(self.fc1(inputs).relu()).relu(), state
