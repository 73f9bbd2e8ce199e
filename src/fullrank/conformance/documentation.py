"""Texts of settings: the string below a field, or its line under ``Args:`` of the class."""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from dataclasses import fields, is_dataclass


def texts(cls: type) -> dict[str, str]:
    """Return the texts of the fields of a class and of the dataclasses that it extends."""
    bases = [base for base in cls.__bases__ if is_dataclass(base)]
    inherited = {name: text for base in bases for name, text in texts(base).items()}
    tree = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    assert isinstance(tree, ast.ClassDef)
    documented = dict(_arguments(inspect.getdoc(cls) or ""))
    for field, below in zip(tree.body, tree.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            match below:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    documented[field.target.id] = inspect.cleandoc(text)
    return inherited | {name: " ".join(text.split()) for name, text in documented.items()}


def _arguments(doc: str) -> Iterator[tuple[str, str]]:
    """Yield the entries below ``Args:`` of a Google docstring."""
    _, _, rest = doc.partition("\nArgs:\n")
    block = rest.partition("\n\n")[0]
    yield from re.findall(r"^    (\w+): ((?:.|\n        )+)", block, flags=re.MULTILINE)


def undocumented(cls: type) -> list[str]:
    """Return the fields of a dataclass without a text."""
    known = texts(cls)
    return [each.name for each in fields(cls) if each.name not in known]
