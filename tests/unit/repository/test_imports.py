"""Rules of the sources: who asks for the time, what is imported where, and names of types."""

import ast
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

TORCH_FREE = [
    "fullrank.codes",
    "fullrank.config",
    "fullrank.replay",
    "fullrank.rounds.round",
    "fullrank.planning.simulation",
    "fullrank.stragglers",
    "fullrank.planning.planner",
    "fullrank.common.updates",
    "fullrank.cli",
    "fullrank_replay.server",
    "fullrank_straggler.server",
]


IMPORT = """
import importlib, sys

for module in {modules}:
    importlib.import_module(module)
    assert "torch" not in sys.modules, module + " imports torch"
from fullrank.codes import codes
from fullrank.config import load

assert "mds" in list(codes)
load()
assert "torch" not in sys.modules, "codes or a configuration import torch"
"""


@pytest.mark.integration
def test_importing_them_finding_codes_and_reading_a_configuration_never_imports_torch() -> None:
    program = [sys.executable, "-c", IMPORT.format(modules=TORCH_FREE)]
    run = subprocess.run(program, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


ROOT = Path(__file__).resolve().parents[3]
TELLING = {"time.time", "time.time_ns", "time.localtime", "time.gmtime"} | {
    f"{owner}.{call}"
    for owner in ("datetime", "date", "datetime.datetime", "datetime.date")
    for call in ("now", "utcnow", "today")
}


def asks(source: str) -> bool:
    """True if a module names a clock that can be set, or takes one from its module."""
    if "time" not in source and "date" not in source:
        return False
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and ast.unparse(node) in TELLING:
            return True
        if isinstance(node, ast.ImportFrom) and node.module == "time":
            names = {f"time.{each.name}" for each in node.names}
            if names & TELLING:
                return True
    return False


def test_the_time_of_day_is_asked_for_where_it_is_shown_or_certified_alone() -> None:
    modules = [path for folder in ("src", "services") for path in (ROOT / folder).rglob("*.py")]
    asking = {path.name for path in modules if asks(path.read_text(encoding="utf-8"))}
    assert asking == {"tensorboard.py", "certificates.py", "say.py"}


SOURCES = [
    path
    for folder in ("src", "services", "papers")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if "v1" not in path.parts
]
MAKERS = ("TypeVar", "NewType", "Callable", "Annotated", "Literal", "Sequence", "Mapping")


def type_names(module: ast.Module) -> Iterator[str]:
    """Names of the classes and type aliases that a module defines."""
    for node in module.body:
        match node:
            case ast.ClassDef(name=name):
                yield name
            case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation):
                if ast.unparse(annotation).endswith("TypeAlias"):
                    yield name
            case ast.Assign(
                targets=[ast.Name(id=name)],
                value=ast.Call(func=ast.Name(id=maker)) | ast.Subscript(value=ast.Name(id=maker)),
            ):
                if maker in MAKERS:
                    yield name


def test_no_two_modules_define_the_same_public_type_name() -> None:
    modules: dict[str, list[str]] = defaultdict(list)
    for path in SOURCES:
        for name in type_names(ast.parse(path.read_text(encoding="utf-8"))):
            if len(name) > 1 and not name.startswith("_"):
                modules[name].append(str(path.relative_to(ROOT)))
    assert {name: paths for name, paths in modules.items() if len(paths) > 1} == {}


LOCKS = Path(__file__).resolve().parents[3] / "deploy" / "requirements"
IMAGES = {
    "controller": ("controller", "torch-cpu"),
    "learner": ("learner", "torch-cpu"),
    "collector": ("collector", "torch-cpu"),
    "replay straggler": ("services",),
    "dashboard": ("dashboard",),
}
"""The locks of the images of services."""
START = """
import importlib, sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {absent!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
for module in {modules!r}:
    importlib.import_module(module)
"""


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.integration
@pytest.mark.parametrize("services", IMAGES)
def test_a_service_starts_with_what_its_image_holds(services: str) -> None:
    locked = {
        _normal(name)
        for lock in IMAGES[services]
        for name in re.findall(r"^([\w.-]+)==", (LOCKS / f"{lock}.txt").read_text(), re.MULTILINE)
    }
    absent = {
        package
        for package, distributions in packages_distributions().items()
        if locked.isdisjoint(map(_normal, distributions)) and not package.startswith("fullrank")
    }
    assert "pytest" in absent
    verbs = [f"fullrank.cli.{verb}" for verb in ("main", "serve", "certs", "doctor")]
    servers = [f"fullrank_{service}.server" for service in services.split()]
    program = START.format(absent=absent, modules=[*verbs, *servers])
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
