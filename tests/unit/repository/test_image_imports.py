"""What an image starts imports nothing that its requirements do not bring."""

import re
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

LOCKS = Path(__file__).resolve().parents[3] / "deploy" / "requirements"
IMAGES = {
    "controller": ("controller", "torch-cpu"),
    "learner": ("learner", "torch-cpu"),
    "collector": ("collector", "torch-cpu"),
    "replay": ("services",),
    "straggler": ("services",),
    "dashboard": ("dashboard",),
}
"""The locks of each image."""
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


@pytest.mark.parametrize("service", IMAGES)
def test_a_service_starts_with_what_its_image_holds(service: str) -> None:
    locked = {
        _normal(name)
        for lock in IMAGES[service]
        for name in re.findall(r"^([\w.-]+)==", (LOCKS / f"{lock}.txt").read_text(), re.MULTILINE)
    }
    absent = {
        package
        for package, distributions in packages_distributions().items()
        if locked.isdisjoint(map(_normal, distributions)) and not package.startswith("fullrank")
    }
    assert "pytest" in absent
    verbs = [f"fullrank.cli.{verb}" for verb in ("main", "serve", "certs", "doctor")]
    program = START.format(absent=absent, modules=[*verbs, f"fullrank_{service}.server"])
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
