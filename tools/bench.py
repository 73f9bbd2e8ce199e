"""Run the benchmarks and write their output into docs/benchmarks.md.

A benchmark is a program in benchmarks/. Its docstring opens with its claim and holds the command to
run it; it prints Markdown and exits with 1 if the claim fails; a picture that it draws as
docs/NAME.png is shown. Naming some (``python tools/bench.py fast_world planner``) renews their
sections and keeps the others.
"""

import argparse
import ast
import os
import platform
import re
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

import torch

from fullrank.networks.fused import kernels

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "benchmarks.md"
TITLE = """# Benchmarks

Ratios are taken within one run on one machine; absolute times are that machine's. `make bench`
renews the whole page, `make bench ARGS="fast_world"` one section.
"""


def programs() -> list[Path]:
    """Benchmarks: modules with a main program, not those that they share."""
    modules = sorted((ROOT / "benchmarks").glob("*.py"))
    return [path for path in modules if 'if __name__ == "__main__":' in path.read_text()]


def command_of(program: Path, claim: str) -> str:
    """Command in the docstring, or else the plain one."""
    plain = f"python benchmarks/{program.name}"
    command = re.search(rf"(?:[A-Z_]+=\S+ )*{re.escape(plain)}[^\n\[`]*", claim)
    return command.group().strip() if command else plain


def run(command: str) -> subprocess.CompletedProcess[str]:
    """Run ``NAME=value ... python ...`` with this Python at the root, without catching stderr."""
    words = shlex.split(command)
    split = words.index("python")
    environment = os.environ | dict(word.split("=", 1) for word in words[:split])
    arguments = [sys.executable, *words[split + 1 :]]
    return subprocess.run(
        arguments, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=False
    )


def section(program: Path) -> tuple[str, bool]:
    """Run a benchmark; return its part of the page and whether its claim holds."""
    claim = ast.get_docstring(ast.parse(program.read_text())) or ""
    command = command_of(program, claim)
    print(f"bench: {command}", file=sys.stderr)
    outcome = run(command)
    holds = outcome.returncode == 0
    picture = PAGE.with_name(f"{program.stem}.png")
    parts = (
        claim.partition("\n\n")[0],
        f"```\n{command}\n```",
        outcome.stdout.strip(),
        f"![{program.stem}]({picture.name})" if picture.exists() else "",
        machine() if holds else f"**Falls short.** {machine()}",
    )
    return "\n".join(map(wrapped, "\n\n".join(filter(None, parts)).split("\n"))), holds


def wrapped(line: str) -> str:
    """Wrap a line of prose or of a list; a table's row stays."""
    indent = "  " if line.startswith("* ") else ""
    if line.startswith("|"):
        return line
    return textwrap.fill(line, 120, subsequent_indent=indent, break_on_hyphens=False)


def machine() -> str:
    """Describe the machine and the numeric kernel."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    kernel = kernels.choose(torch.device("cpu"), least_product=kernels.ONEDNN_LEAST)
    instructions = torch.backends.cpu.get_cpu_capability()
    return (
        f"Machine: {cores} cores, {kernels.processor()}, {platform.machine()} {instructions}, "
        f"torch {torch.__version__}, float32 kernel {kernel.name}."
    )


def read(page: Path) -> dict[str, str]:
    """Sections of an existing page, by benchmark."""
    if not page.exists():
        return {}
    _, *parts = re.split(r"^## (\w+)\n+", page.read_text(), flags=re.MULTILINE)
    return dict(zip(parts[::2], map(str.strip, parts[1::2]), strict=True))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the named benchmarks, write the page after each; return 1 if a claim falls short."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    known = {program.stem: program for program in programs()}
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(known)}")
    names = parser.parse_args(arguments).names or list(known)
    if unknown := set(names) - set(known):
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}")
    sections = {name: text for name, text in read(PAGE).items() if name in known}
    short = []
    for name in names:
        sections[name], holds = section(known[name])
        short += [] if holds else [name]
        parts = [TITLE, *(f"## {name}\n\n{sections[name]}\n" for name in sorted(sections))]
        PAGE.write_text("\n".join(parts))
    print(f"falls short: {', '.join(short)}" if short else "every claim holds", file=sys.stderr)
    return bool(short)


if __name__ == "__main__":
    sys.exit(main())
