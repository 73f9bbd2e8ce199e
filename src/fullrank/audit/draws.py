"""Draws of audits, keyed by a secret of the controller: no learner can foresee them.

A learner that knew which units are computed again would be honest in those. The key lies in the run
directory, so that a controller that is killed and resumed makes the same draws.
"""

import hashlib
from dataclasses import dataclass, field

KEY_BYTES = 32


@dataclass(frozen=True, slots=True)
class AuditDraws:
    """Uniform draws under a key; equal keys make equal draws.

    Args:
        key: The secret.

    >>> draws = AuditDraws(bytes(32))
    >>> sum(draws.audits(iteration, every=10) for iteration in range(1000))
    100
    """

    key: bytes = field(repr=False)

    def below(self, count: int, purpose: str, *indices: int) -> int:
        """A number in 0..count - 1; the bias is below 2^-100."""
        text = f"{purpose} {' '.join(map(str, indices))}".encode()
        drawn = hashlib.blake2b(text, key=self.key, digest_size=16).digest()
        return int.from_bytes(drawn, "big") * count >> 128

    def audits(self, iteration: int, *, every: int) -> bool:
        """True in one iteration of each window of ``every``."""
        window, place = divmod(iteration, every)
        return place == self.below(every, "audit", window)

    def spots(
        self, iteration: int, index: int, *, probability: float, purpose: str = "spot"
    ) -> bool:
        """True with a probability, independently for each purpose, iteration and index."""
        return self.below(2**64, purpose, iteration, index) < probability * 2**64
