"""Registries of plug-ins: a new code, algorithm, environment or delay model is one new file."""

import difflib
import importlib
import pkgutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from importlib.metadata import EntryPoint, entry_points
from inspect import unwrap
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar

from fullrank.common.errors import ConfigError

T = TypeVar("T")
C = TypeVar("C", bound=type)


def nearest(word: str, known: list[str]) -> str:
    """``; did you mean 'x'?`` when a known word is close, else a list of the known ones."""
    if not known:
        return "; there are none"
    close = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; known: {', '.join(sorted(known))}"


class Registry(Generic[T]):
    """Classes by name. The fields of a registered dataclass are its configuration keys.

    A class in a module of its own name is found by importing that module alone. Any other look-up
    imports all modules of a package and loads an entry-point group, so that installed plug-ins need
    no change here.

    Args:
        kind: Noun for messages, for example ``code``.
        group: Entry-point group of plug-ins; empty: none are looked for.
        package: Package of the built-in classes; by default the name of the group.
        interface: Protocol of the classes; its abstract methods must be defined.
        base: Another registry, whose classes belong to this one as well.
        hint: Returns what a name looks like that is not known, after a semicolon, or nothing.
    """

    def __init__(
        self,
        kind: str,
        group: str = "",
        *,
        package: str = "",
        interface: type = object,
        base: "Registry[T] | None" = None,
        hint: Callable[[str], str] = lambda name: "",
    ) -> None:
        self.kind, self._hint = kind, hint
        self._group, self._package = group, package or group
        self._interface, self._base = interface, base
        self._classes: dict[str, type[T]] = {}
        self._discovered = False

    def register(self, name: str) -> Callable[[C], C]:
        """Class decorator: make the class known as ``name``."""

        def add(cls: C) -> C:
            if name in self._classes and self._classes[name] is not cls:
                raise ConfigError(f"two classes claim the {self.kind} name {name!r}; rename one")
            _let_super_find(cls)
            self._classes[name] = cls
            return cls

        return add

    def _discover(self) -> None:
        if self._discovered:
            return
        if self._base is not None:
            self._base._discover()
            self._classes |= self._base._classes
        if self._group:
            self._import()
        self._discovered = True

    def _find(self, name: str) -> None:
        """Look for a class, first in the package's module of that name, which may lie deeper."""
        if self._base is None and self._group and not self._discovered and name.isidentifier():
            package = importlib.import_module(self._package)
            for module in _called(name, package):
                importlib.import_module(module)
        if name not in self._classes:
            self._discover()

    def _import(self) -> None:
        package = importlib.import_module(self._package)
        places, prefix = getattr(package, "__path__", []), f"{self._package}."
        for module in pkgutil.walk_packages(places, prefix):
            importlib.import_module(module.name)
        for point in entry_points(group=self._group):
            _load(point)

    def __iter__(self) -> Iterator[str]:
        """All names, sorted."""
        self._discover()
        return iter(sorted(self._classes))

    def get(self, name: str) -> type[T]:
        """Return the class called ``name``.

        Raises:
            ConfigError: There is no such class, or it lacks a method of the interface.
        """
        if name not in self._classes:
            self._find(name)
        if name not in self._classes:
            hint = self._hint(name) or nearest(name, list(self._classes))
            raise ConfigError(f"unknown {self.kind} {name!r}{hint}")
        cls = self._classes[name]
        for method in vars(self._interface):
            if not method.startswith("_") and _is_missing(method, cls):
                raise ConfigError(
                    f"the {self.kind} {name!r} ({cls.__module__}.{cls.__name__}) has no method "
                    f"{method!r}; add it"
                )
        return cls

    def check_keys(self, name: str, keys: Iterable[str], *, table: str = "") -> None:
        """Refuse unknown and missing parameters of ``name`` with ``ConfigError``.

        Args:
            name: Name of a class.
            keys: The parameters that are given.
            table: The configuration's table that gives them, for the remedy.
        """
        cls = self.get(name)
        parameters = [f for f in fields(cls) if f.init] if is_dataclass(cls) else []
        given = set(keys)
        self.refuse_unknown(name, given, known=[f.name for f in parameters])
        for f in parameters:
            if f.name not in given and f.default is MISSING and f.default_factory is MISSING:
                remedy = f"; give it by --set {table}.{f.name}=VALUE" if table else ""
                raise ConfigError(f"{self.kind} {name!r} needs the parameter {f.name!r}{remedy}")

    def refuse_unknown(self, name: str, keys: Iterable[str], *, known: list[str]) -> None:
        """Refuse parameters of ``name`` that are none of the known ones with ``ConfigError``."""
        for key in sorted(set(keys).difference(known)):
            hint = nearest(key, known) if known else "; it takes no parameter"
            raise ConfigError(f"{self.kind} {name!r} has no parameter {key!r}{hint}")

    def build(self, name: str, **params: Any) -> T:
        """An instance of ``name``; unknown keys raise ``ConfigError`` with the nearest key."""
        self.check_keys(name, params)
        return self.get(name)(**params)


def _let_super_find(cls: type) -> None:
    """Let ``super()`` without arguments work in the methods of a dataclass with slots.

    Slots take a new class, and before Python 3.14 methods keep the old one in a cell.
    """
    for member in vars(cls).values():
        method = unwrap(getattr(member, "fget", None) or getattr(member, "__func__", member))
        code = getattr(method, "__code__", None)
        if code is not None and "__class__" in code.co_freevars:
            method.__closure__[code.co_freevars.index("__class__")].cell_contents = cls


def _called(name: str, package: ModuleType) -> Iterator[str]:
    """Yield the modules called ``name`` in a package and in its packages, importing none."""
    for folder in map(Path, getattr(package, "__path__", [])):
        for file in (*folder.glob(f"{name}.py"), *folder.glob(f"*/{name}.py")):
            yield ".".join((package.__name__, *file.relative_to(folder).with_suffix("").parts))


def _is_missing(method: str, cls: type) -> bool:
    return getattr(getattr(cls, method, None), "__isabstractmethod__", not hasattr(cls, method))


def _load(point: EntryPoint) -> None:
    try:
        point.load()
    except Exception as error:
        raise ConfigError(
            f"the plug-in {point.name!r} ({point.value}) cannot be loaded: {error}; "
            "repair or uninstall it"
        ) from error
