"""Parameters of this package's algorithms, read from their source: to import one imports torch."""

import ast
from collections.abc import Mapping
from importlib.resources import files
from typing import Any, Literal

PACKAGE = "fullrank.algorithms"
SIMPLE: Mapping[str, Any] = {"bool": bool, "int": int, "float": float, "str": str}


def declared(name: str) -> dict[str, Any]:
    """Types by parameter of the algorithm in the module of its own name; Any for compound ones."""
    tree = _parsed(name)
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and f"register('{name}')" in map(
            ast.unparse, node.decorator_list
        ):
            return _fields(tree, node)
    return {}


def _parsed(module: str) -> ast.Module:
    return ast.parse((files(PACKAGE) / f"{module}.py").read_text(encoding="utf-8"))


def _fields(tree: ast.Module, node: ast.ClassDef) -> dict[str, Any]:
    """Fields of a dataclass and of its bases in this package."""
    found: dict[str, Any] = {}
    for base in map(ast.unparse, node.bases):
        found |= _fields_of(tree, base)
    for line in node.body:
        if isinstance(line, ast.AnnAssign) and "ClassVar" not in ast.unparse(line.annotation):
            found[ast.unparse(line.target)] = _type(line.annotation)
    return found


def _fields_of(tree: ast.Module, name: str) -> dict[str, Any]:
    """Fields of a class that a module defines, or imports from a module of this package."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return _fields(tree, node)
        if isinstance(node, ast.ImportFrom) and name in [alias.name for alias in node.names]:
            package, _, module = str(node.module).rpartition(".")
            return _fields_of(_parsed(module), name) if package == PACKAGE else {}
    return {}


def _type(annotation: ast.expr) -> Any:
    if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) == "Literal":
        return Literal[ast.literal_eval(annotation.slice)]
    return SIMPLE.get(ast.unparse(annotation), Any)
