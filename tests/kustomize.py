"""Rendering of the manifests in deploy/k8s, as in the first step of ``kubectl apply -k``."""

import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import yaml

Manifest: TypeAlias = dict[str, Any]

DEPLOY = Path(__file__).resolve().parents[1] / "deploy"
OVERLAYS = DEPLOY / "k8s/overlays"


def _kubectl() -> str:
    pinned = Path(sys.executable).with_name("kubectl")
    found = str(pinned) if pinned.exists() else shutil.which("kubectl")
    if found is None:
        pytest.skip("needs kubectl, which python tools/kubectl.py installs")
    return found


def render(folder: Path) -> str:
    """A kustomization as YAML."""
    command = [_kubectl(), "kustomize", str(folder)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")
    return run.stdout


def parse(text: str) -> list[Manifest]:
    """The objects in YAML."""
    return [manifest for manifest in yaml.load_all(text, yaml.CSafeLoader) if manifest]


@cache
def manifests(overlay: str) -> list[Manifest]:
    """The objects of an overlay in deploy/k8s."""
    return parse(render(OVERLAYS / overlay))
