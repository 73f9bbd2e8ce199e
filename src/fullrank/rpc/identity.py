"""Identity of a process: a role in a run, as its certificate states."""

from dataclasses import dataclass
from enum import StrEnum, auto
from typing import Self

SCHEME = "fullrank"


class Role(StrEnum):
    """Role of a certificate's holder; each rpc declares the roles that may call it."""

    CONTROLLER = auto()
    LEARNER = auto()
    REPLAY = auto()
    MONITOR = auto()
    ADMIN = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A role in a run."""

    run: str
    role: Role

    @property
    def uri(self) -> str:
        """URI in the certificate, which servers read."""
        return f"{SCHEME}://{self.run}/{self.role}"

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
        run, _, role = rest.partition("/")
        if scheme != SCHEME or not run:
            raise ValueError(f"{uri} is not {SCHEME}://RUN/ROLE")
        return cls(run=run, role=Role(role))
