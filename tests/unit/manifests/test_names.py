"""The run's name: written once in an overlay, it parts the objects of a run from another's."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.e2e.commands import fullrank
from tests.kustomize import DEPLOY, Manifest, manifests, parse, render
from tests.unit.manifests.test_objects import RELEASES, validate
from tests.workloads import environ_of, selects, workloads_in, workloads_of

from fullrank.host.certificates import Identity, Role

INSTANCE = "app.kubernetes.io/instance"
SELECTORS = ("selector", "podSelector", "labelSelector")
COMPONENTS = sorted(path.name for path in (DEPLOY / "k8s/components").iterdir())


def selectors_of(part: Any) -> Iterator[Manifest]:
    """Every selector of pods in manifests."""
    if isinstance(part, dict):
        for key, value in part.items():
            if key in SELECTORS:
                yield value if "matchLabels" in value else {"matchLabels": value}
            else:
                yield from selectors_of(value)
    elif isinstance(part, list):
        for each in part:
            yield from selectors_of(each)


def labels_of(objects: list[Manifest]) -> list[dict[str, str]]:
    """Labels of every pod."""
    return [each.labels for each in workloads_in(objects).values()]


def test_every_object_and_every_selector_names_the_run(overlay: str) -> None:
    objects = manifests(overlay)
    selecting = [each["matchLabels"] for each in selectors_of(objects)]
    labels = [each["metadata"]["labels"] for each in objects]
    named = {each.get(INSTANCE) for each in (*selecting, *labels, *labels_of(objects))}
    assert named == {"fullrank"}


def test_a_variable_stands_behind_those_that_its_value_names(overlay: str) -> None:
    """A kubelet expands no other, and takes the rest literally."""
    for workload in workloads_of(overlay).values():
        for container in workload.containers:
            before: set[str] = set()
            for each in container.get("env", []):
                assert set(re.findall(r"\$\((\w+)\)", each.get("value", ""))) <= before
                before.add(each["name"])


def test_the_run_s_name_is_that_of_its_label(overlay: str) -> None:
    (controller,) = workloads_of(overlay)["controller"].pod["containers"]
    (name,) = (each for each in controller["env"] if each["name"] == "FULLRANK__NAME")
    assert name["valueFrom"]["fieldRef"]["fieldPath"] == f"metadata.labels['{INSTANCE}']"


def guide() -> str:
    """The overlay that the guide shows."""
    text = (DEPLOY.parent / "docs/deploy/kubernetes.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    return str(block)


class Overlays:
    """Overlays of a user beside those of the repository."""

    def __init__(self, folder: Path) -> None:
        self.root = Path(shutil.copytree(DEPLOY, folder / "deploy")) / "k8s/overlays"

    def render(self, name: str, kustomization: str) -> list[Manifest]:
        """The objects of a kustomization."""
        (self.root / name).mkdir()
        (self.root / name / "kustomization.yaml").write_text(kustomization)
        (self.root / name / "run.toml").write_text("learners = 15\n")
        return parse(render(self.root / name))


@pytest.fixture
def overlays(tmp_path: Path) -> Overlays:
    return Overlays(tmp_path)


def named(run: str, resources: str = "[../eks]", components: str = "[]") -> str:
    """A run's overlay as in the guide."""
    return (
        f"resources: {resources}\ncomponents: {components}\nnamePrefix: {run}-\n"
        f"labels: [{{pairs: {{{INSTANCE}: {run}}}, includeSelectors: true}}]\n"
    )


def alone(run: str, objects: list[Manifest]) -> None:
    """Check that a run's objects refer to one another, and to Secrets of its name."""
    names = {(each["kind"], each["metadata"]["name"]) for each in objects}
    assert {name for _, name in names if not name.startswith(f"{run}-")} == set()
    for name, workload in workloads_in(objects).items():
        pod, spec = workload.pod, workload.spec
        if "serviceAccountName" in pod:
            assert ("ServiceAccount", pod["serviceAccountName"]) in names
        for service in filter(None, (spec.get("serviceName"), pod.get("subdomain"))):
            assert ("Service", service) in names
        for volume in pod["volumes"]:
            if "configMap" in volume:
                assert ("ConfigMap", volume["configMap"]["name"]) in names
            if "persistentVolumeClaim" in volume:
                claim = volume["persistentVolumeClaim"]["claimName"]
                assert ("PersistentVolumeClaim", claim) in names
            if "secret" in volume:
                assert volume["secret"]["secretName"].startswith(f"{run}-certificate-")
        for container in workload.containers:
            environ = environ_of(container)
            for peer in ("CONTROLLER", "REPLAY"):
                address = environ.get(f"FULLRANK__{peer}__ADDRESS", "127.0.0.1:")
                host = address.rpartition(":")[0]
                assert host == "127.0.0.1" or ("Service", host) in names, (name, address)


@pytest.mark.integration
def test_two_runs_in_one_namespace_share_no_object_and_select_no_pod_of_each_other(
    overlays: Overlays, overlay: str
) -> None:
    """One has the name of the overlay as it is, which the repository's manifests have."""
    named_run = overlays.render("team-a", named("team-a", f"[../{overlay}]"))
    alone("team-a", named_run)
    runs = named_run, manifests(overlay)
    keys = [{(each["kind"], each["metadata"]["name"]) for each in objects} for objects in runs]
    assert keys[0] & keys[1] == set()
    for own, other in (runs, runs[::-1]):
        selectors, others = list(selectors_of(own)), labels_of(other)
        assert selectors
        assert not any(selects(each, labels) for each in selectors for labels in others)


@pytest.mark.integration
@pytest.mark.parametrize("component", sorted({*COMPONENTS} - {"pod"}))
def test_every_component_takes_the_run_s_name(overlays: Overlays, component: str) -> None:
    added = f"[../../components/{component}]"
    first = "[../jobset]" if component in ("kueue", "kubeflow") else "[../../base]"
    objects = overlays.render("team-a", named("team-a", first, added))
    alone("team-a", objects)
    validate(objects, RELEASES[0])
    for part in (*selectors_of(objects), *({"matchLabels": each} for each in labels_of(objects))):
        assert part["matchLabels"][INSTANCE] == "team-a"
    assert any(component in text for text in _rows()), "deploy/k8s/README.md has no row of it"


def _rows() -> list[str]:
    text = (DEPLOY / "k8s/README.md").read_text(encoding="utf-8")
    return [line for line in text.splitlines() if line.startswith("| `")]


@pytest.mark.integration
def test_secrets_of_the_run_s_certificates_are_those_that_its_pods_mount(
    overlays: Overlays, tmp_path: Path
) -> None:
    fullrank("certs", "init", str(tmp_path / "certs"), "--run", "team-a")
    printed = yaml.safe_load_all(fullrank("certs", "secrets", str(tmp_path / "certs")).output)
    made = {each["metadata"]["name"] for each in printed}
    components = "[../../components/collectors, ../../components/dashboard]"
    objects = overlays.render("team-a", named("team-a", components=components))
    volumes = [
        each for workload in workloads_in(objects).values() for each in workload.pod["volumes"]
    ]
    assert {each["secret"]["secretName"] for each in volumes if "secret" in each} == made


def test_cert_manager_makes_what_fullrank_certs_makes(overlays: Overlays) -> None:
    components = (
        "[../../components/collectors, ../../components/dashboard, ../../components/cert-manager]"
    )
    objects = overlays.render("team-a", named("team-a", components=components))
    made = {
        each["spec"]["secretName"]: each["spec"]
        for each in objects
        if each["kind"] == "Certificate" and not each["spec"].get("isCA")
    }
    volumes = [
        each for workload in workloads_in(objects).values() for each in workload.pod["volumes"]
    ]
    assert {each["secret"]["secretName"] for each in volumes if "secret" in each} == set(made)
    issuers = {each["metadata"]["name"] for each in objects if each["kind"] == "Issuer"}
    for name, spec in made.items():
        role = Role(name.removeprefix("team-a-certificate-"))
        identity = Identity(run="fullrank", role=role)
        assert (spec["uris"], spec["dnsNames"]) == ([identity.uri], [identity.server_name])
        assert spec["usages"] == ["server auth", "client auth"]
        assert spec["issuerRef"]["name"] in issuers


def test_the_overlay_of_the_guide_wins_where_it_speaks(overlays: Overlays) -> None:
    found = overlays.render("mine", guide())
    alone("team-a", found)
    objects = {(each["kind"], each["metadata"]["name"]): each for each in found}
    assert objects["StatefulSet", "team-a-learner"]["spec"]["replicas"] == 15
    (configuration,) = (each for kind, each in objects.items() if kind[0] == "ConfigMap")
    assert configuration["data"]["run.toml"] == "learners = 15\n"
    assert {each[INSTANCE] for each in labels_of(found)} == {"team-a"}
