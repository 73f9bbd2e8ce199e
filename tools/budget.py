"""Count the code of each package, compare it with its budget, and list the modules.

A line counts if it holds code, or data in TOML: docstrings, comments, blank lines, imports and
generated stubs do not. ``[tool.fullrank.budget]`` in ``pyproject.toml`` gives the lines that a
package may have; whoever adds a way to do something removes another one. ``docs/modules.md`` has
the first paragraph of each module's docstring; ``--write`` renews it from its first section on.
"""

import ast
import io
import sys
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STUBS = "fullrank/v1"
PRODUCT = ("src", "services", "papers", "tools")
"""Folders whose sum is the product."""
PAGE = ROOT / "docs" / "modules.md"
SILENT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


def _uncounted(tree: ast.AST) -> Iterator[int]:
    """Yield the lines of docstrings, of fields too, and of imports."""
    for node in ast.walk(tree):
        text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node, (ast.Import, ast.ImportFrom)) or (
            text and isinstance(node.value.value, str)  # type: ignore[attr-defined]
        ):
            yield from range(node.lineno, (node.end_lineno or node.lineno) + 1)  # type: ignore[attr-defined]


def code_lines(source: str) -> int:
    """The number of lines that hold code."""
    lines = {
        line
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type not in SILENT
        for line in range(token.start[0], token.end[0] + 1)
    }
    return len(lines.difference(_uncounted(ast.parse(source))))


def modules(folder: Path) -> list[Path]:
    """The modules under a folder that were written by hand; a module stands for itself."""
    found = [folder] if folder.is_file() else folder.rglob("*.py")
    return sorted(path for path in found if STUBS not in path.as_posix())


def data_lines(source: str) -> int:
    """The number of lines of TOML that hold data."""
    return sum(not line.lstrip().startswith("#") for line in source.splitlines() if line.strip())


def counted(packages: list[str]) -> dict[str, int]:
    """Lines of code and data of each package."""
    return {
        package: sum(code_lines(path.read_text()) for path in modules(ROOT / package))
        + sum(data_lines(path.read_text()) for path in (ROOT / package).rglob("*.toml"))
        for package in packages
    }


def importers() -> Counter[str]:
    """Number of modules of the product that import each of its modules by name."""
    found: Counter[str] = Counter()
    names = {name(path): path for part in PRODUCT[:3] for path in modules(ROOT / part)}
    for own, path in names.items():
        wanted: set[str] = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                wanted |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                taken = (f"{node.module}.{alias.name}" for alias in node.names)
                wanted |= {each if each in names else node.module for each in taken}
        found.update((wanted & names.keys()) - {own})
    return Counter({known: found[known] for known in names})


def name(path: Path) -> str:
    """Import name of a module of the product."""
    parts = list(path.relative_to(ROOT).with_suffix("").parts)
    first = next(index for index, part in enumerate(parts) if part.startswith("fullrank"))
    return ".".join(part for part in parts[first:] if part != "__init__")


def page() -> str:
    """A table of the modules of each package, by the first paragraphs of their docstrings."""
    found: dict[Path, list[str]] = {}
    for path in (path for part in PRODUCT[:3] for path in modules(ROOT / part)):
        about = (ast.get_docstring(ast.parse(path.read_text())) or "").partition("\n\n")[0]
        link = f"[`{path.stem}`](../{path.relative_to(ROOT).as_posix()})"
        contents = " ".join(about.split()).replace("``", "`").replace("|", "\\|")
        found.setdefault(path.parent, []).append(f"| {link} | {contents} |")
    opening, _, _ = PAGE.read_text().partition("\n## ")
    return opening + "".join(
        "\n".join(
            [f"\n## {folder.relative_to(ROOT)}\n", "| module | contents |", "|---|---|", *rows, ""]
        )
        for folder, rows in sorted(found.items())
    )


def main() -> int:
    """Print lines and budgets; 1 if one is exceeded or missing, or the page is stale."""
    if "--write" in sys.argv[1:]:
        PAGE.write_text(page())
        return 0
    with (ROOT / "pyproject.toml").open("rb") as file:
        budgets: dict[str, int] = tomllib.load(file)["tool"]["fullrank"]["budget"]
    lines = counted(list(budgets))
    for package, count in lines.items():
        mark = "" if count <= budgets[package] else "  over its budget"
        print(f"{count:7} of {budgets[package]:6}  {package}{mark}")
    covered = {path for package in budgets for path in modules(ROOT / package)}
    missed = [
        path.relative_to(ROOT).as_posix()
        for part in PRODUCT
        for path in modules(ROOT / part)
        if path not in covered
    ]
    for path in missed:
        print(f"{path} has no budget; give its package one in [tool.fullrank.budget]")
    found = importers()
    rare = sum(1 for count in found.values() if count == 1)
    print(f"{sum(lines.values()):7} lines, {len(found)} modules, {rare} with one importer")
    stale = PAGE.read_text() != page()
    if stale:
        print("docs/modules.md is stale; run python tools/budget.py --write")
    return int(bool(missed or stale) or any(lines[each] > budgets[each] for each in lines))


if __name__ == "__main__":
    sys.exit(main())
