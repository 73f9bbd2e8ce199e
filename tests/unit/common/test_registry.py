"""Registries: one new file, or one entry point, makes a class known by name."""

import sys
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Protocol

import pytest

from fullrank.common import registry as module
from fullrank.common.errors import ConfigError
from fullrank.common.registry import Registry

PLUGIN = """
from dataclasses import dataclass
from {package} import shapes

@shapes.register("{name}")
@dataclass(frozen=True)
class Shape:
    size: int = 1
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An importable package that holds a registry and no class yet."""
    root = tmp_path / "shapes_of_test"
    root.mkdir()
    (root / "__init__.py").write_text(
        "from fullrank.common.registry import Registry\n"
        "shapes = Registry('shape', 'shapes_of_test')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield root
    for name in [name for name in sys.modules if name.startswith("shapes_of_test")]:
        del sys.modules[name]


def shapes_of(package: Path) -> Registry[object]:
    return __import__(package.name).shapes  # type: ignore[no-any-return]


@dataclass(frozen=True, kw_only=True)
class Circle:
    radius: float
    colour: str = "red"
    _area: float = field(init=False, default=0.0)


def circles() -> Registry[Circle]:
    registry: Registry[Circle] = Registry("circle", "fullrank.stragglers")
    registry.register("circle")(Circle)
    return registry


def test_a_new_file_in_the_package_is_found(package: Path) -> None:
    (package / "square.py").write_text(PLUGIN.format(package=package.name, name="square"))
    assert list(shapes_of(package)) == ["square"]


@pytest.mark.parametrize("folder", [".", "polygons"])
def test_a_class_in_a_file_of_its_name_is_found_without_the_other_files(
    package: Path, folder: str
) -> None:
    (package / "broken.py").write_text("import a_module_that_is_not_there\n")
    (package / folder).mkdir(exist_ok=True)
    (package / folder / "square.py").write_text(PLUGIN.format(package=package.name, name="square"))
    shapes = shapes_of(package)
    assert shapes.build("square", size=2).size == 2  # type: ignore[attr-defined]
    with pytest.raises(ModuleNotFoundError, match="a_module_that_is_not_there"):
        shapes.get("circle")


def test_an_installed_plug_in_is_found(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (package.parent / "plug_in_of_test.py").write_text(
        PLUGIN.format(package=package.name, name="plugged")
    )
    point = EntryPoint("plugged", "plug_in_of_test", package.name)
    monkeypatch.setattr(module, "entry_points", lambda group: [point] * (group == package.name))
    assert "plugged" in shapes_of(package)
    del sys.modules["plug_in_of_test"]


def test_a_plug_in_that_cannot_be_loaded_is_named(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    point = EntryPoint("plugged", "there_is_no_such_plug_in", package.name)
    monkeypatch.setattr(module, "entry_points", lambda group: [point])
    with pytest.raises(ConfigError, match=r"plug-in 'plugged' \(there_is_no_such_plug_in\)"):
        list(shapes_of(package))


def test_a_name_is_claimed_once() -> None:
    registry = circles()
    registry.register("circle")(Circle)  # the same class again, as a re-import does
    with pytest.raises(ConfigError, match="two classes claim the circle name 'circle'"):
        registry.register("circle")(dict)


def test_an_unknown_name_gets_the_nearest() -> None:
    with pytest.raises(ConfigError, match="unknown circle 'circel'; did you mean 'circle'"):
        circles().get("circel")


def test_an_unknown_parameter_gets_the_nearest() -> None:
    with pytest.raises(ConfigError, match="no parameter 'color'; did you mean 'colour'"):
        circles().build("circle", radius=1.0, color="blue")


def test_a_missing_parameter_is_named() -> None:
    with pytest.raises(ConfigError, match="circle 'circle' needs the parameter 'radius'"):
        circles().build("circle")


class Shape(Protocol):
    @abstractmethod
    def area(self) -> float: ...

    @abstractmethod
    def scaled(self, by: float) -> "Shape": ...

    def corners(self) -> int:
        return 0


@pytest.mark.parametrize("base", [Shape, object])
def test_a_class_without_a_method_of_the_interface_is_refused(base: type) -> None:
    registry: Registry[Shape] = Registry("shape", interface=Shape)
    members = {"area": lambda self: 1.0, "corners": lambda self: 0}
    registry.register("blob")(type("Blob", (base,), members))
    with pytest.raises(ConfigError, match=r"the shape 'blob' \(.*Blob\) has no method 'scaled'"):
        registry.build("blob")


class Sized:
    def area(self) -> float:
        return 1.0

    @classmethod
    def sides(cls) -> int:
        return 3


def test_super_works_in_the_methods_of_a_registered_dataclass_with_slots() -> None:
    registry: Registry[Sized] = Registry("shape")

    @registry.register("doubled")
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Doubled(Sized):
        scale: float = 2.0

        def area(self) -> float:
            return self.scale * super().area()

        @classmethod
        def sides(cls) -> int:
            return 1 + super().sides()

        @property
        def half(self) -> float:
            return super().area() / 2

    built = registry.build("doubled")
    assert isinstance(built, Doubled)
    assert (built.area(), built.sides(), built.half) == (2.0, 4, 0.5)
