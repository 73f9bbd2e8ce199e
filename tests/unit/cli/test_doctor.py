"""``fullrank doctor``: truthful checks, and an exit code that scripts can rely on."""

import json
from importlib import import_module
from importlib.metadata import PackageNotFoundError, entry_points
from pathlib import Path
from types import SimpleNamespace

import pytest

from .conftest import Command

module = import_module("fullrank.cli.doctor")


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module, "_LEAST_MEMORY_BYTES", 0)  # others use this machine's memory, too


def findings(fullrank: Command) -> tuple[int, dict[str, dict[str, object]]]:
    code, output, _ = fullrank("doctor", "--json")
    facts = json.loads(output)
    assert facts["usable"] == (code == 0)
    return code, {check["name"]: check for check in facts["checks"]}


def test_a_usable_machine_is_code_0(fullrank: Command, tmp_path: Path) -> None:
    code, found = findings(fullrank)
    assert code == 0
    assert all(check["ok"] for check in found.values() if check["required"])
    services = "collector, controller, dashboard, learner, local, replay, straggler"
    assert found["services"]["detail"] == services
    assert "float32" in str(found["update kernel"]["detail"])
    assert list(tmp_path.iterdir()) == []


def test_a_port_that_cannot_be_is_no_other_one(fullrank: Command) -> None:
    code, output, error = fullrank("doctor", "127.0.0.1:99999")
    assert (code, output, error) == (2, "", "fullrank: 127.0.0.1:99999: ports end at 65535\n")


def test_findings_are_lines_for_people(fullrank: Command) -> None:
    code, output, _ = fullrank("doctor")
    assert code == 0
    assert output.splitlines()[-1] == "ready"
    assert all(line.startswith(("ok ", "-- ")) for line in output.splitlines()[:-1])


def without(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = module.importlib.metadata.version

    def version(name: str) -> str:
        if name == package:
            raise PackageNotFoundError(name)
        return str(installed(name))

    monkeypatch.setattr(module.importlib.metadata, "version", version)


def test_a_missing_required_package_is_code_1(
    fullrank: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    without("grpcio", monkeypatch)
    code, found = findings(fullrank)
    assert code == 1
    assert found["grpcio"]["detail"] == "missing: reinstall fullrank"
    assert fullrank("doctor").output.splitlines()[-1].startswith("not usable")


def test_a_missing_extra_is_said_and_forgiven(
    fullrank: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    without("mpe2", monkeypatch)
    code, found = findings(fullrank)
    assert code == 0
    assert found["mpe2"]["detail"] == "missing: pip install 'fullrank[mpe]'"


SERVICES = {point.name for point in entry_points(group="fullrank.services")}


@pytest.mark.parametrize("missing", sorted(SERVICES))
def test_a_service_that_is_not_installed_is_named(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = [SimpleNamespace(name=name) for name in SERVICES - {missing}]
    monkeypatch.setattr(module.importlib.metadata, "entry_points", lambda group: left)
    assert module._services() == (False, f"not installed: {missing}; reinstall fullrank")


def test_whatever_an_examination_raises_is_its_finding(
    fullrank: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: str) -> None:
        raise PermissionError("cannot look")

    monkeypatch.setattr("psutil.disk_usage", full)
    code, found = findings(fullrank)
    assert code == 1
    assert found["run directory"]["detail"] == "PermissionError: cannot look"


def test_too_little_memory_is_named(fullrank: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LEAST_MEMORY_BYTES", 2**60)
    code, found = findings(fullrank)
    assert code == 1
    assert "the defaults need" in str(found["memory"]["detail"])


@pytest.mark.parametrize(
    ("named", "learners"),
    [("auto", "0 on cuda:0, 1 on cuda:1, 2 on cuda:0"), ("cuda:1", "0 on cuda:1, 1 on cuda:1, ")],
)
def test_devices_are_listed_with_what_runs_where(
    named: str, learners: str, fullrank: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FULLRANK__COMPUTE__DEVICE", named)
    monkeypatch.setattr("fullrank.algorithms.devices.visible", lambda: 2)
    monkeypatch.setattr("fullrank.algorithms.devices.lack_of_kernels", str)
    _, found = findings(fullrank)
    assert str(found["placement"]["detail"]).startswith(
        f"2 CUDA devices; the controller on cpu, learner {learners}"
    )


def test_what_kernels_lack_is_said_where_there_is_a_device(
    fullrank: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    lack = "Triton finds no C compiler: install gcc, or name a compiler in CC"
    monkeypatch.setattr("fullrank.algorithms.devices.visible", lambda: 1)
    monkeypatch.setattr("fullrank.algorithms.devices.lack_of_kernels", lambda: lack)
    code, found = findings(fullrank)
    assert code == 0
    detail = f"the controller and all learners on the CPU; {lack}"
    assert found["placement"]["detail"] == detail
    monkeypatch.setenv("FULLRANK__COMPUTE__DEVICE", "cuda")
    code, found = findings(fullrank)
    assert code == 1
    assert lack in str(found["placement"]["detail"])


def test_a_device_that_this_environment_names_and_that_is_not_there_is_said(
    fullrank: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FULLRANK__COMPUTE__DEVICE", "cuda:0,cuda:2")
    monkeypatch.setattr("fullrank.algorithms.devices.visible", lambda: 2)
    monkeypatch.setattr("fullrank.algorithms.devices.lack_of_kernels", str)
    code, found = findings(fullrank)
    assert code == 1
    assert "compute.device = 'cuda:0,cuda:2' needs cuda:2" in str(found["placement"]["detail"])
