"""Identity of a process: a role in a run, and perhaps one learner, as its certificate states."""

import re
from dataclasses import dataclass
from enum import StrEnum, auto
from typing import Self

SCHEME = "fullrank"

_NUMBER = re.compile(r"0|[1-9][0-9]{0,5}", re.ASCII)


class Role(StrEnum):
    """Role of a certificate's holder; each rpc declares the roles that may call it."""

    CONTROLLER = auto()
    LEARNER = auto()
    REPLAY = auto()
    MONITOR = auto()
    ADMIN = auto()
    COLLECTOR = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A role in a run."""

    run: str
    role: Role
    learner: int | None = None
    """Number of the one learner that the certificate is for; None if all of the role share it."""

    @property
    def folder(self) -> str:
        """Name of the folder with the certificate: the role, and the learner's number."""
        return self.role if self.learner is None else f"{self.role}-{self.learner}"

    @property
    def uri(self) -> str:
        """URI in the certificate, which servers read."""
        number = "" if self.learner is None else f"/{self.learner}"
        return f"{SCHEME}://{self.run}/{self.role}{number}"

    @property
    def server_name(self) -> str:
        """DNS name in the certificate, which callers verify wherever the server listens."""
        return f"{self.role}.{self.run}"

    @classmethod
    def parse(cls, uri: str) -> Self:
        """An identity from its URI.

        Raises:
            ValueError: It is not the URI of an identity.
        """
        scheme, _, rest = uri.partition("://")
        run, _, path = rest.partition("/")
        role, numbered, number = path.partition("/")
        if scheme != SCHEME or not run:
            raise ValueError(f"{uri} is not {SCHEME}://RUN/ROLE")
        if not numbered:
            return cls(run=run, role=Role(role))
        if role != Role.LEARNER or not _NUMBER.fullmatch(number):
            raise ValueError(f"{uri} is not {SCHEME}://RUN/{Role.LEARNER}/NUMBER")
        return cls(run=run, role=Role.LEARNER, learner=int(number))
