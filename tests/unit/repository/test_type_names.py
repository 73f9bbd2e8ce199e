"""One public type name stands for one thing."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
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
