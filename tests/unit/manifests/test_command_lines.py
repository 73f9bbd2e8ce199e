"""Each line of the pages that calls kubectl or helm is one that they understand.

No cluster is there: a line is understood if it fails for that reason alone.
"""

import re
import shlex
import subprocess
from pathlib import Path

import pytest
from tests.kustomize import DEPLOY
from tests.unit.manifests.test_chart import program
from tests.waiting import WAIT_S

ROOT = DEPLOY.parent
PAGES = [*sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs/deploy").glob("*.md"))]
CALL = re.compile(r"(?:kubectl|helm)(?= ).*")
MENTIONED = re.compile(r"\w+ \w+(?: -k| controller-0 --)?")
"""Spans that name a command and not what it is to do."""
AWAY = re.compile(
    "connection refused|connection to the server .* was refused|cluster unreachable|dial tcp"
)
KUBECONFIG = """apiVersion: v1
kind: Config
current-context: none
contexts: [{name: none, context: {cluster: none, user: none}}]
clusters: [{name: none, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: none, user: {}}]
"""
SECRET = "apiVersion: v1\nkind: Secret\nmetadata: {name: any}\n"


def calls(page: Path) -> set[str]:
    """Calls in blocks and in code spans of a page."""
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"^```console\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in re.sub(r"\\\n>?", "", block).splitlines()]
    shown = [re.sub(r"\s+# .*$", "", line).lstrip("$> ") for line in lines]
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    spans = [re.sub(r"\s+", " ", span) for span in re.findall(r"`([^`]+)`", prose)]
    parts = [part.strip(" &") for line in shown for part in re.split(r" (?:\|\|?|&&|;) ", line)]
    found = [*parts, *(each for each in spans if not MENTIONED.fullmatch(each))]
    return {each for each in found if CALL.fullmatch(each)}


LINES = sorted({(page.name, call) for page in PAGES for call in calls(page)})


def test_the_guide_s_lines_are_found() -> None:
    assert ("kubernetes.md", "kubectl scale statefulset learner --replicas 8") in LINES
    assert len(LINES) > 30


def understood(call: str, scratch: Path) -> None:
    (scratch / "config").write_text(KUBECONFIG)
    name, *words = shlex.split(call.replace("...", "any=1").replace("$role", "learner"))
    run = subprocess.run(
        [program(name), *words],
        cwd=ROOT,
        env={"KUBECONFIG": str(scratch / "config"), "HOME": str(scratch), "PATH": "/usr/bin:/bin"},
        input=SECRET,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert run.returncode == 0 or AWAY.search(run.stderr), run.stdout + run.stderr


@pytest.mark.parametrize(("page", "call"), LINES, ids=lambda each: str(each))
def test_a_line_is_understood(page: str, call: str, tmp_path: Path) -> None:
    understood(call, tmp_path)


@pytest.mark.parametrize(
    "call",
    [
        "kubectl scale statefulset learner --replica 8",
        "kubectl aply -k deploy/k8s/overlays/eks",
        "kubectl apply -k deploy/k8s/overlays/none",
        "helm install team-a deploy/none",
    ],
)
def test_a_line_with_a_fault_is_not(call: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        understood(call, tmp_path)
