"""Look for known vulnerabilities of what is installed here and of what the images lock.

Exit code 0: all was looked up and nothing is known. 1: something is known. 3: the advisories are
out of reach, so that nothing can be said.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

LOCKS = Path(__file__).resolve().parents[1] / "deploy" / "requirements"
NOTHING_KNOWN, VULNERABLE, OUT_OF_REACH = 0, 1, 3


def audited(words: list[str]) -> int:
    """Run pip-audit with ``words``, and print what it says."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "advisories.json"
        command = [sys.executable, "-m", "pip_audit", "--format", "json", "--output", str(report)]
        run = subprocess.run([*command, *words], capture_output=True, text=True, check=False)
        if run.returncode == 0:
            return NOTHING_KNOWN
        if report.exists():  # written once every distribution was looked up
            print(run.stderr, report.read_text(), sep="\n")
            return VULNERABLE
    print(run.stderr.strip().splitlines()[-1:], file=sys.stderr)
    return OUT_OF_REACH


def main() -> int:
    """Audit this environment, then the locks."""
    locks = [word for lock in sorted(LOCKS.glob("*.txt")) for word in ("--requirement", str(lock))]
    found = {audited(["--local", "--skip-editable"]), audited(["--disable-pip", *locks])}
    if VULNERABLE in found:
        return VULNERABLE
    if OUT_OF_REACH in found:
        print("the advisories are out of reach: not all was looked up", file=sys.stderr)
        return OUT_OF_REACH
    print("no vulnerability is known of anything installed or locked")
    return NOTHING_KNOWN


if __name__ == "__main__":
    sys.exit(main())
