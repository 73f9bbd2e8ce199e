"""Parameters of this package's algorithms, read from their source: to import one imports torch."""

import ast
from collections.abc import Mapping
from importlib.resources import files
from typing import Any, Literal

PACKAGE = "fullrank.algorithms"
SIMPLE: Mapping[str, Any] = {"bool": bool, "int": int, "float": float, "str": str}


def declared(module: str, cls: str = "") -> dict[str, Any]:
    """Types by field of a dataclass and its bases; Any for compound types.

    Args:
        module: Name of a module of the package.
        cls: Name of the class; default: the algorithm that is called like the module.
    """
    tree = ast.parse((files(PACKAGE) / f"{module}.py").read_text(encoding="utf-8"))
    origins, found = dict[str, str](), dict[str, Any]()
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith(f"{PACKAGE}."):
            origins |= {alias.name: str(node.module).split(".")[-1] for alias in node.names}
        if isinstance(node, ast.ClassDef) and (cls or f"register('{module}')") in (
            node.name,
            *map(ast.unparse, node.decorator_list),
        ):
            for base in map(ast.unparse, node.bases):
                found |= declared(origins.get(base, module), base)
            found |= {
                ast.unparse(line.target): _type(line.annotation)
                for line in node.body
                if isinstance(line, ast.AnnAssign) and "ClassVar" not in ast.unparse(line)
            }
    return found


def _type(annotation: ast.expr) -> Any:
    if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) == "Literal":
        return Literal[ast.literal_eval(annotation.slice)]
    return SIMPLE.get(ast.unparse(annotation), Any)
