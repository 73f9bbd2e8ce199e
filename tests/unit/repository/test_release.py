"""A release: one version, signed-off licences, bills of materials, advisories."""

import importlib.util
import json
import re
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from fullrank import __version__

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def distribution() -> ModuleType:
    path = ROOT / "tools" / "distribution.py"
    spec = importlib.util.spec_from_file_location("distribution", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_version_stands_in_one_place_and_pages_name_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" not in project["project"]
    assert project["tool"]["hatch"]["version"]["path"] == "src/fullrank/__init__.py"
    changes = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    released = changes[1]
    assert changes[0] == "Unreleased"
    assert __version__ in (released, f"{_next_minor(released)}.dev0")
    tagged = (ROOT / "deploy/k8s/overlays/eks/kustomization.yaml").read_text()
    assert set(re.findall(r"newTag: (\S+?)}", tagged)) == {released}
    assert f"TAG={released}" in (ROOT / "docs/deploy/kubernetes.md").read_text()


def _next_minor(version: str) -> str:
    major, minor, _ = version.split(".")
    return f"{major}.{int(minor) + 1}.0"


def test_every_installed_dependency_has_a_licence_that_is_signed_off(
    distribution: ModuleType,
) -> None:
    found = distribution.table()
    assert [name for name, licences in found.items() if not licences] == []
    page = distribution.PAGE.read_text()
    listed = dict(re.findall(r"^\| (\S+) \| (.+?) \|$", page, re.MULTILINE))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for requirement in project["dependencies"]:
        name = re.split(r"[^\w-]", requirement, maxsplit=1)[0]
        assert listed[name] == ", ".join(found[name])


def test_an_unknown_licence_is_signed_off_by_nobody(
    distribution: ModuleType, tmp_path: Path
) -> None:
    facts = tmp_path / "closed-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Name: closed\nVersion: 1.0\nLicense: Proprietary\n")
    [closed] = distribution.installed(tmp_path).values()
    assert distribution.licences(closed) == []


def test_a_bill_of_materials_lists_what_an_image_installs(
    distribution: ModuleType,
) -> None:
    pytest.importorskip("cyclonedx", reason="needs the extra release")
    known = distribution.installed()
    bill = json.loads(distribution.materials("learner", known))
    names = {part["name"] for part in bill["components"]}
    assert bill["bomFormat"] == "CycloneDX"
    assert {"torch", "grpcio", "fullrank", "sympy"} <= names
    assert "matplotlib" not in names
    assert all(part["licenses"] for part in bill["components"] if part["name"] != "fullrank")
