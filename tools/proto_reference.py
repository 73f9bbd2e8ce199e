"""Write docs/protos.md, from its first section on, from the comments of protos/.

``--check`` fails if the page is stale.

Files are parsed line by line, one declaration a line, as they are formatted in this repository.
"""

import argparse
import re
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROTOS = ROOT / "protos" / "fullrank" / "v1"
PAGE = ROOT / "docs" / "protos.md"

BLOCK = re.compile(r"(service|message|enum|extend) ([\w.]+) \{\}?")
RPC = re.compile(r"rpc (\w+)\((.+)\) returns \((.+)\) \{")
ACCESS = re.compile(r"option \(access\) = \{roles: \[(.+)\](, proved: true)?\};")
ONEOF = re.compile(r"oneof (\w+) \{")
FIELD = re.compile(r"((?:optional |repeated )?(?:map<.+>|[\w.]+)) (\w+) = (\d+);")
VALUE = re.compile(r"(\w+) = (\d+);")
SILENT = re.compile(r"(package|import|reserved) .+;|\}|")


def page() -> str:
    """Contents of the page."""
    files = sorted(PROTOS.glob("*.proto"))
    opening, _, _ = PAGE.read_text(encoding="utf-8").partition("\n## ")
    text = opening + "".join("\n".join(section(path)) for path in files)
    return "\n".join(map(_wrapped, re.sub(r"\n{3,}", "\n\n", text).split("\n")))


def _wrapped(line: str) -> str:
    """Wrap a paragraph or an item of a list."""
    indent = "  " if line.startswith("* ") else ""
    return textwrap.fill(line, 120, subsequent_indent=indent, break_on_hyphens=False)


def section(path: Path) -> Iterator[str]:
    """Yield a file's lines: headings for blocks and rpcs, a list for the members of a block."""
    yield f"\n## {path.name}\n"
    comment: list[str] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        stripped = line.strip()
        if stripped.startswith("//"):
            comment.append(stripped.removeprefix("//").strip())
            continue
        lines = rendered(stripped, comment)
        if lines is None:
            raise SystemExit(f"proto_reference: {path.name}, line {number} is not understood")
        yield from lines
        comment = []
    yield ""


def rendered(line: str, comment: Sequence[str]) -> list[str] | None:
    """Lines of the page for a declaration; None if it is not one."""
    if line.startswith("syntax"):
        return [*comment, ""]
    if match := BLOCK.fullmatch(line):
        kind, name = match.groups()
        return ["", f"### {kind} {name}", "", *comment, ""]
    if match := RPC.fullmatch(line):
        name, request, response = match.groups()
        return ["", f"#### {name}", "", f"`{request}` → `{response}`", "", *comment, ""]
    if match := ACCESS.fullmatch(line):
        roles = [role.strip().removeprefix("ROLE_").lower() for role in match[1].split(",")]
        alone = "; in plain text on the unix socket alone" if match[2] else ""
        return [f"*Callers*: {', '.join(roles)}{alone}."]
    if match := ONEOF.fullmatch(line):
        return [_member(f"one of ({match[1]})", comment)]
    if match := FIELD.fullmatch(line):
        return [_member(f"`{match[2]}` (`{match[1]}`, {match[3]})", comment)]
    if match := VALUE.fullmatch(line):
        return [_member(f"`{match[1]}` ({match[2]})", comment)]
    return [] if SILENT.fullmatch(line) else None


def _member(name: str, comment: Sequence[str]) -> str:
    """Item for a field, an enum value or a oneof; ``name`` holds its type and number."""
    return f"* {name}: {' '.join(comment)}" if comment else f"* {name}"


def main() -> int:
    """Write the page, or compare it with the committed one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail if the page is stale")
    fresh = page()
    if parser.parse_args().check:
        if PAGE.read_text(encoding="utf-8") != fresh:
            print("docs/protos.md is stale; run python tools/proto_reference.py")
            return 1
    else:
        PAGE.write_text(fresh, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
