"""RMSprop over a flat parameter vector, with the semantics of ``torch.optim.RMSprop``.

Tieleman and Hinton: Lecture 6.5, COURSERA: Neural Networks for Machine Learning, 2012; without
momentum and centring, epsilon is added to the root.
"""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class RMSprop:
    """Hyperparameters of RMSprop."""

    learning_rate: float
    decay: float = 0.99
    epsilon: float = 1e-5

    def step(self, online: Tensor, gradient: Tensor, mean_square: Tensor) -> None:
        """Move ``online`` along a gradient and renew the mean square, both in place.

        Products and sums are separate: fused ones round otherwise at the ends of vector loops,
        whose places depend on the number of threads.
        """
        mean_square.mul_(self.decay).add_(gradient.square().mul_(1.0 - self.decay))
        root = mean_square.sqrt().add_(self.epsilon)
        online.sub_(gradient.mul(self.learning_rate).div_(root))
