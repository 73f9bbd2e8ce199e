"""Local code: modules that Python loads from outside installed distributions.

The environment that a user names may lie in the working directory, with whatever it imports. A
guard, the first finder of this process, loads such modules from the bytes that it has hashed, never
from cached bytecode, and shows each to a policy before it runs. Installed modules always come
first: a file of the working directory takes no other module's place.
"""

import os
import site
import sys
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from hashlib import blake2b
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import (
    ExtensionFileLoader,
    ModuleSpec,
    PathFinder,
    SourceFileLoader,
    SourcelessFileLoader,
)
from importlib.metadata import distributions
from pathlib import Path
from types import CodeType, ModuleType
from typing import Protocol

from fullrank.common.errors import FullrankError
from fullrank.common.foreign import read_regular

GROUPS = [
    f"fullrank.{name}"
    for name in ("services", "verbs", "codes", "algorithms", "environments", "stragglers", "sinks")
]
"""Groups of entry points by which installed packages extend this program."""
LIMIT_BYTES = 2**30
"""Largest file of code."""
SUFFIXES = (".py", ".pyc", ".so")
"""Names of files that Python may load as modules end so."""


class CodePolicy(Protocol):
    """Decides about local modules."""

    def judge(self, file: str, digest: str) -> None:
        """Take note of a file with these bytes, or refuse to run it.

        Raises:
            CodeRefused: The user has not given the word for it.
        """


class Guard(MetaPathFinder):
    """Finds modules as Python does, and loads local ones itself.

    Args:
        programs: Packages of this program and its plug-ins, which the user has installed.

    Attributes:
        programs: The same.
        loaded: Digests of the local files that were loaded, by real path.
        policy: Judges each local file before it runs; None: take note alone.
    """

    def __init__(self, programs: frozenset[str]) -> None:
        self.programs = programs
        self.loaded: dict[str, str] = {}
        self.policy: CodePolicy | None = None

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the module's specification, with a loader of this guard if it is local."""
        if fullname.partition(".")[0] in self.programs:
            return None
        spec = _found(fullname, path, target)
        if spec is None or (file := code_file(spec)) is None or is_installed(file):
            return spec
        if (loader := LOADERS.get(type(spec.loader))) is not None:
            spec.loader = loader(fullname, str(spec.origin), self._judge)
        else:  # a module of an archive, or of another finder's loader
            self._judge(file, digest_of(Path(file)))
        return spec

    def _judge(self, file: str, digest: str) -> None:
        file = os.path.realpath(file)
        if self.policy is not None:
            self.policy.judge(file, digest)
        self.loaded[file] = digest


class _Judged:
    """A loader of files that shows a file to the guard, which makes it with a judge."""

    def __init__(self, fullname: str, path: str, judge: Callable[[str, str], None]) -> None:
        super().__init__(fullname, path)  # type: ignore[call-arg]
        self._judge = judge


class _Source(_Judged, SourceFileLoader):  # type: ignore[misc]
    """Compiles the bytes that it has shown to the guard."""

    def get_code(self, fullname: str) -> CodeType:
        data = self.get_data(self.path)
        self._judge(self.path, digest(data))
        code: CodeType = self.source_to_code(data, self.path)
        return code


class _Bytecode(_Judged, SourcelessFileLoader):
    """Runs the bytecode that it has shown to the guard."""

    def get_data(self, path: str) -> bytes:
        data = super().get_data(path)
        if path == self.path:
            self._judge(path, digest(data))
        return data


class _Extension(_Judged, ExtensionFileLoader):
    """Shows a file to the guard before the system's loader opens it by its path."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        self._judge(self.path, digest_of(Path(self.path)))
        return super().create_module(spec)


LOADERS: Mapping[type, Callable[..., Loader]] = {
    SourceFileLoader: _Source,
    SourcelessFileLoader: _Bytecode,
    ExtensionFileLoader: _Extension,
}
"""Loaders of local modules in place of Python's."""


@cache
def guard() -> Guard:
    """Return the guard of this process, which guards imports from now on."""
    installed = distributions(path=_search_path()[:-1])  # plug-ins, but none of this directory
    points = (point for found in installed for point in found.entry_points)
    plug_ins = {point.module.partition(".")[0] for point in points if point.group in GROUPS}
    made = Guard(frozenset({"fullrank", *plug_ins}))
    sys.meta_path.insert(0, made)
    return made


def is_guarded() -> bool:
    """Return whether this process has a guard."""
    return any(isinstance(finder, Guard) for finder in sys.meta_path)


def search_working_directory() -> None:
    """Let an environment that the user names lie in the working directory, which is searched last.

    Nothing else is imported from there: it may be a directory that came from elsewhere.
    """
    guard()
    sys.path[:] = _search_path()


def find(module: str) -> list[ModuleSpec]:
    """Find a module and the packages that contain it, outermost first, and import none.

    A package may change at its import where its modules are; the guard judges what is loaded.

    Returns:
        The specifications; none if there is no such module.
    """
    specs: list[ModuleSpec] = []
    path: Sequence[str] | None = None
    parts = module.split(".")
    for number in range(1, len(parts) + 1):
        spec = _found(".".join(parts[:number]), path) if parts[number - 1] else None
        if spec is None or (number < len(parts) and spec.submodule_search_locations is None):
            return []
        specs.append(spec)
        path = [*(spec.submodule_search_locations or ())]
    return specs


def code_file(spec: ModuleSpec) -> str | None:
    """Return the real path of the file that a module is loaded from; None if there is none."""
    if not spec.has_location or not spec.origin:
        return None
    return os.path.realpath(getattr(spec.loader, "archive", spec.origin))


def is_installed(file: str) -> bool:
    """Return whether a real path lies where distributions are installed."""
    return any(file.startswith(root) for root in _roots())


def is_standard(file: str) -> bool:
    """Return whether a real path lies in Python's own library."""
    parts = Path(file).parts
    return is_installed(file) and not {"site-packages", "dist-packages"} & set(parts)


def digest(data: bytes) -> str:
    """Return the digest by which code is recognised."""
    return blake2b(data, digest_size=32).hexdigest()


def digest_of(path: Path) -> str:
    """Return the digest of a file; empty if it is no regular file that can be read."""
    try:
        return digest(read_regular(path, LIMIT_BYTES))
    except FullrankError:
        return ""


def imported_before(module: str) -> dict[str, str]:
    """Return the digests of all local files by real path, if a module is there without the guard.

    A script may import its environment before it trains it.
    """
    specs = [getattr(each, "__spec__", None) for each in list(sys.modules.values())]
    local = {
        spec.name: file
        for spec in specs
        if isinstance(spec, ModuleSpec) and spec.name.partition(".")[0] not in guard().programs
        if (file := code_file(spec)) is not None and not is_installed(file)
    }
    before = module in local and local[module] not in guard().loaded
    return {file: digest_of(Path(file)) for file in local.values()} if before else {}


def _found(
    fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
) -> ModuleSpec | None:
    """Ask the other finders; ``PathFinder`` searches the working directory last."""
    for finder in list(sys.meta_path):
        if isinstance(finder, Guard) or not hasattr(finder, "find_spec"):
            continue
        search = _search_path() if finder is PathFinder and path is None else path
        try:
            spec = finder.find_spec(fullname, search, target)
        except KeyError:  # a package without __init__, in one that is not imported
            name = fullname.rpartition(".")[2]
            places = [place for each in path or () if os.path.isdir(place := f"{each}/{name}")]
            spec = ModuleSpec(fullname, None, is_package=True)
            spec.submodule_search_locations = places
        if spec is not None:
            return spec
    return None


def _search_path() -> list[str]:
    here = os.getcwd()
    return [*(entry for entry in sys.path if os.path.realpath(entry) != here), here]


@cache
def _roots() -> frozenset[str]:
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    folders = [sysconfig.get_path(name) for name in names] + site.getsitepackages()
    if site.ENABLE_USER_SITE:
        folders.append(site.getusersitepackages())
    return frozenset(os.path.realpath(folder) + os.sep for folder in folders if folder)
