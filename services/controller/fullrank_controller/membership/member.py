"""A member: a process that is attached by a stream, and the numerics by which it computes."""

import asyncio
import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from secrets import token_bytes
from typing import Literal, Self

from fullrank.common.errors import FullrankError
from fullrank.common.types import LearnerId
from fullrank.host.shared_memory import ReadBlock
from fullrank.net.limits import Silence
from fullrank.run.placement import Domain
from fullrank.runs.verdicts import Party
from fullrank.v1.common_pb2 import Ids
from fullrank_controller.learners.outbox import Outbox

_LETTERS = str.maketrans("0123456789abcdef", "abcdefghijklmnop")

LEASE_BYTES = 16
"""Length of a lease token, too long to guess."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Numerics:
    """Properties on which bits depend; processes with equal ones compute the same bits."""

    identity: str
    """Digest of fingerprint and probe, 16 letters: no other value of a setting looks alike."""
    fingerprint: str
    """Kernels, instructions, torch, threads and device; empty if the identity alone is known."""
    since: int = 0
    """First iteration of the run that is computed so."""

    @classmethod
    def of(cls, fingerprint: str, probe: Sequence[bytes]) -> Self:
        """The numerics of a process, from its fingerprint and the digests of its probe."""
        digest = hashlib.blake2b(fingerprint.encode(), digest_size=8)
        for part in probe:
            digest.update(len(part).to_bytes(4, "big") + part)
        return cls(identity=digest.hexdigest().translate(_LETTERS), fingerprint=fingerprint)


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Host and certificate of a stream, as its connection proves them."""

    address: str = ""
    """Network address of its host, without the port."""
    certificate: str = ""
    """Identity in its certificate; empty in plain text."""
    bound: bool = False
    """True if the certificate is for one learner alone."""


def identity_of(numerics: Numerics | None) -> str:
    """The identity of numerics; empty while they are not known."""
    return numerics.identity if numerics is not None else ""


@dataclass(eq=False, slots=True, kw_only=True)
class Member:
    """An attached learner or collector."""

    learner: LearnerId
    host: str
    role: Literal["learner", "collector"] = "learner"
    heard_at: float
    """Loop time of the last message or heartbeat."""
    silence: Silence
    """Its heartbeats, and the limit of its silence."""
    sent_at: float = 0.0
    """Loop time of the last message on its stream; heartbeats do not count."""
    begun: Ids | None = None
    """Ids of the vector that its stream has begun to send."""
    domain: Domain = ()
    origin: Origin = Origin()
    lease: bytes = field(default_factory=partial(token_bytes, LEASE_BYTES), repr=False)
    """Token that its heartbeats must carry."""
    process: bytes = b""
    """Identity of the learner's process, stable across its streams."""
    since: int = 0
    """Iterations that were applied when it joined."""
    contributed: tuple[int, int] | None = None
    """First and last iteration of which it has sent a vector or a report; None before."""
    outbox: Outbox = field(default_factory=Outbox)
    numerics: Numerics | None = None
    """Its numerics; None until it is ready, and if it is unstable."""
    ready: bool = False
    """True once it has sent a stable probe, so that it may hold rows."""
    maps_table: bool = False
    """True if it gathers minibatches from the table's file instead of receiving them."""
    batch_bytes: int = 0
    """Bytes of the rows of its last minibatch."""
    vectors: ReadBlock | None = None
    """The learner's block, through which sections and vectors pass; None: they are sent."""
    quarantined: str = ""
    """Reason why it holds no row (``fullrank.runs.verdicts``); empty if it is trusted."""
    drained: bool = False
    """True if an administrator wants it to hold no row."""
    parting: str = "it ended its stream"
    """Why it has left, unless its stream failed."""
    expelled: asyncio.Future[None] = field(default_factory=asyncio.Future)
    """Fails with the reason when the controller ends the stream."""

    def contributes(self, iteration: int) -> None:
        """Record a vector or a report of an iteration since it joined."""
        if iteration >= self.since:
            first, last = self.contributed or (iteration, iteration)
            self.contributed = min(first, iteration), max(last, iteration)

    def expel(self, reason: FullrankError) -> None:
        """End the stream with the status of ``reason``; the first reason counts."""
        if not self.expelled.done():
            self.expelled.set_exception(reason)

    @property
    def party(self) -> Party:
        """What its stream has proved and claimed, for a verdict on it."""
        return Party(
            learner=self.learner,
            role=self.role,
            host=self.host,
            address=self.origin.address,
            certificate=self.origin.certificate,
            bound=self.origin.bound,
            process=self.process.hex(),
        )

    @property
    def identity(self) -> str:
        """Identity of its numerics; empty before they are known."""
        return identity_of(self.numerics)

    def objection(self, numerics: Numerics | None) -> str:
        """Why it may hold no row of a run of these numerics, unless it is quarantined; or empty."""
        if self.drained:
            return "an administrator has drained it"
        if self.numerics is None:
            return ""
        if not self.ready:
            return "its bits depend on what it computes together"
        if numerics is not None and self.identity != numerics.identity:
            return (
                f"its numeric fingerprint is {self.identity}, that of the run {numerics.identity}"
            )
        return ""


def excluded(members: Sequence[Member], numerics: Numerics | None) -> str:
    """A clause that counts the members that are attached and cannot help a run."""
    unstable = [member for member in members if member.numerics is not None and not member.ready]
    others = Counter(
        member.identity
        for member in members
        if member.ready
        and not (member.quarantined or member.drained)
        and member.objection(numerics)
    )
    clause = ""
    if unstable:
        clause = f"; the bits of {len(unstable)} depend on what they compute together"
    if others and numerics is not None:
        [(identity, count)] = others.most_common(1)
        clause += (
            f"; {others.total()} have another numeric fingerprint than the run "
            f"({numerics.identity}), {count} of them {identity}: to go on with those, "
            f"set audit.fingerprint={identity}"
        )
    return clause
