"""Plant each fault in a copy of the tree, and see its test fail.

``python -m tests.planted [WORD ...]`` takes the faults whose area or name contains a word; without
words, all of them. It exits with 1 if a test passes with its fault, or fails without.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.planted import Planted, faults

ROOT = Path(__file__).resolve().parents[2]
HANG_S = 900


def _copy(target: Path) -> None:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file() and not name.startswith("docs/"):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)


def _passes(tree: Path, test: str) -> bool:
    """Run one test in the tree.

    Raises:
        RuntimeError: It did not run.
    """
    sources = [tree / "src"]
    sources += [*(tree / "services").iterdir(), *(tree / "papers").iterdir()]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, sources)),
        "PYTHONDONTWRITEBYTECODE": "1",  # a fault of the same length and second looks unchanged
    }
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", test]
    try:
        done = subprocess.run(
            command, cwd=tree, env=environment, capture_output=True, text=True, timeout=HANG_S
        )
    except subprocess.TimeoutExpired:
        print(f"hangs: {test}")
        return False
    ran = done.returncode == 1 or (done.returncode == 0 and " passed" in done.stdout)
    if not ran:  # or all of it was skipped
        raise RuntimeError(f"{test} did not run:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.returncode == 0


def _verdict(tree: Path, fault: Planted, sound: dict[str, bool]) -> str:
    if fault.test not in sound:
        sound[fault.test] = _passes(tree, fault.test)
    if not sound[fault.test]:
        return "FAILS WITHOUT"
    source = tree / fault.file
    text = source.read_text()
    source.write_text(text.replace(fault.before, fault.after))
    try:
        return "SURVIVES" if _passes(tree, fault.test) else "caught"
    finally:
        source.write_text(text)


def main(words: list[str]) -> int:
    """Plant the chosen faults; print a line for each."""
    chosen = [
        fault
        for fault in faults()
        if not words or any(word in f"{fault.area} {fault.name}" for word in words)
    ]
    sound: dict[str, bool] = {}
    verdicts = []
    with TemporaryDirectory() as folder:
        _copy(Path(folder))
        for fault in chosen:
            verdicts.append(_verdict(Path(folder), fault, sound))
            print(f"{verdicts[-1]:13} {fault.area}: {fault.name}  [{fault.test}]", flush=True)
    caught = verdicts.count("caught")
    print(f"{caught} of {len(chosen)} faults caught")
    return int(caught < len(chosen) or not chosen)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
