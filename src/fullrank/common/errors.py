"""All errors that Fullrank raises on purpose; messages name fault and remedy.

``exit_code`` is the exit code of the command line (docs/exit-codes.md); the gRPC status
of each error is in ``fullrank.net.errors``. An error is ``final`` if a restart cannot cure it: a
run that ends by one has failed until its user has removed the cause.
"""

import errno
from typing import ClassVar


class FullrankError(Exception):
    """Base of all errors raised on purpose."""

    exit_code: ClassVar[int] = 1
    final: ClassVar[bool] = False


class ConfigError(FullrankError):
    """A configuration key or value is unknown or impossible."""

    exit_code = 2
    final = True


class CodeRefused(ConfigError):
    """Code of an environment would run without the user's word for it."""


class CodeError(ConfigError):
    """No such code exists for these sizes; the message names the inequality."""


class TooFewRows(CodeError):
    """A code needs R >= M + s.

    Args:
        name: The code's registered name.
        rows: R.
        units: M.
        tolerance: s, the losses that the code was asked to survive.
    """

    def __init__(self, name: str, *, rows: int = 0, units: int = 0, tolerance: int = 0) -> None:
        self.name, self.rows, self.units, self.tolerance = name, rows, units, tolerance
        super().__init__(self.inequality("rows", "units"))

    def inequality(self, rows: str, units: str) -> str:
        """The violated inequality, with the caller's names for rows and units."""
        if not self.tolerance:
            return f"{self.name} needs {rows} >= {units}: {self.rows} < {self.units}"
        return (
            f"{self.name} needs {rows} >= {units} + tolerance: "
            f"{self.rows} < {self.units} + {self.tolerance}"
        )


class EnvironmentFailed(FullrankError):
    """An environment cannot be made, or raised while stepping."""

    exit_code = 3
    final = True


class NoEnd(EnvironmentFailed):
    """An episode has run for so many steps that it is taken to have no end."""


class AddressInUse(FullrankError):
    """A service cannot bind its address."""

    exit_code = 4


class RunDirectoryInUse(FullrankError):
    """Another controller holds the run directory, or it holds another run."""

    exit_code = 5


class NotDecodable(FullrankError):
    """The rows received do not determine the target."""

    exit_code = 6
    final = True


class VersionMismatch(FullrankError):
    """A peer runs another version of Fullrank, or a later one wrote a file."""

    exit_code = 7
    final = True


class CheckpointUnusable(FullrankError):
    """A checkpoint is missing, incomplete or damaged."""

    exit_code = 8
    final = True


class ServiceLost(FullrankError):
    """A service ended or cannot be reached within its deadline."""

    exit_code = 9


class DeadlinePassed(ServiceLost):
    """A peer did not answer, or did not accept a message, in time."""


class StaleTerm(FullrankError):
    """Another controller of the run has a later term."""

    exit_code = 11


class AccessDenied(FullrankError):
    """A certificate is of another run, or of a role without this permission."""

    exit_code = 12
    final = True


class Unauthenticated(AccessDenied):
    """A peer has no certificate of this run."""


class Overloaded(ServiceLost):
    """A peer exceeds a limit of a service.

    Args:
        message: The exceeded limit.
        retry_after_s: Time after which to retry; 0 if unknown.
    """

    def __init__(self, message: str, *, retry_after_s: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Stuck(FullrankError):
    """A phase took far longer than ever before, and its process was ended."""

    exit_code = 14


class NotFound(FullrankError):
    """There is no item with the given name or number."""


class Malformed(FullrankError):
    """Data from elsewhere (a file, a message, text) break their schema or a bound."""


class InvalidContribution(Malformed):
    """A contribution has the wrong shape, length, checksum or a non-finite value."""


class Corrupted(FullrankError):
    """A decoded unit does not match its digest, or stored rows do not match their checksums."""

    exit_code = 10
    final = True


class NotFinite(InvalidContribution):
    """A contribution has a value that is not finite."""


class Unsound(FullrankError):
    """A parameter, moment, update, row or statistic of a run is not finite."""

    exit_code = 15
    final = True


class GradientTooLarge(Unsound):
    """A gradient has entries whose sums are not exact."""


class OutOfRange(FullrankError):
    """A replay position has not been written yet or was evicted."""


class StorageFailed(FullrankError):
    """A write to disk failed."""


class Cancelled(FullrankError):
    """Work was abandoned at a cancellation point because its iteration was committed."""


def of_exit_code(code: int, message: str) -> FullrankError:
    """The error that another process has ended by; ``ServiceLost`` if its code names none."""
    named = {error.exit_code: error for error in FullrankError.__subclasses__()}
    return named.get(code if code > 1 else ServiceLost.exit_code, ServiceLost)(message)


_REMEDIES = {
    **dict.fromkeys((errno.EMFILE, errno.ENFILE), "allow more with `ulimit -n`"),
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "make room and resume"),
    errno.EROFS: "mount it writable",
    **dict.fromkeys((errno.EACCES, errno.EPERM), "allow this user to read and write it"),
}
"""What to do about an error of the system, by its number."""


def expected(error: BaseException) -> FullrankError | None:
    """The error to report if every part of ``error`` is one that is expected, else None."""
    if isinstance(error, OSError) and error.errno in _REMEDIES:
        where = f": {error.filename}" if error.filename else ""
        return FullrankError(f"{error.strerror}{where}; {_REMEDIES[error.errno]}")
    if not isinstance(error, BaseExceptionGroup):
        return error if isinstance(error, FullrankError) else None
    parts = [expected(part) for part in error.exceptions]
    return None if None in parts else parts[0]
