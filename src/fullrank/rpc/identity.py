"""Who a process is to its peers: a role in a run, as its certificate says."""

from dataclasses import dataclass
from enum import StrEnum, auto
from typing import Self

SCHEME = "fullrank"


class Role(StrEnum):
    """What a certificate lets its holder do; ``access.proto`` says what that is for each call."""

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
        """What a server reads out of its caller's certificate."""
        return f"{SCHEME}://{self.run}/{self.role}"

    @property
    def server_name(self) -> str:
        """The name that a caller asks its server's certificate for, wherever the server listens."""
        return f"{self.role}.{self.run}"

    @classmethod
    def parse(cls, uri: str) -> Self:
        """An identity from its URI.

        Raises:
            ValueError: It is none.
        """
        scheme, _, rest = uri.partition("://")
        run, _, role = rest.partition("/")
        if scheme != SCHEME or not run:
            raise ValueError(f"{uri} is not {SCHEME}://RUN/ROLE")
        return cls(run=run, role=Role(role))
