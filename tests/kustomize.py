"""Rendering the manifests in deploy/k8s, as ``kubectl apply -k`` does first."""

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


def _kubectl() -> str:
    pinned = Path(sys.executable).with_name("kubectl")
    found = str(pinned) if pinned.exists() else shutil.which("kubectl")
    if found is None:
        pytest.skip("there is no kubectl; python tools/kubectl.py installs one")
    return found


@cache
def rendered(overlay: str) -> str:
    """The overlay as YAML."""
    command = [_kubectl(), "kustomize", str(DEPLOY / "k8s/overlays" / overlay)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")
    return run.stdout


@cache
def manifests(overlay: str) -> list[Manifest]:
    """The overlay's objects."""
    return [manifest for manifest in yaml.safe_load_all(rendered(overlay)) if manifest]
