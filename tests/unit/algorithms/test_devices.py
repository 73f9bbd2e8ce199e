"""Assignment of devices to the processes of a host, without any device."""

import sys
from collections.abc import Iterator
from functools import partial

import pytest

from fullrank.algorithms.devices import device_of, lack_of_kernels, left_out, placed
from fullrank.common.errors import ConfigError


@pytest.fixture(autouse=True)
def kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Triton can compile kernels, unless a test takes something away."""
    monkeypatch.setitem(sys.modules, "triton", sys)
    monkeypatch.setenv("CC", "cc")
    lack_of_kernels.cache_clear()
    yield
    lack_of_kernels.cache_clear()


UNKNOWN = "is no device: use 'auto', 'cpu', 'cuda', 'cuda:K' or a list such as 'cuda:0,cuda:1'"


@pytest.mark.parametrize(
    ("name", "devices", "expected"),
    [
        ("cuda", 2, ["cuda:0", "cuda:1", "cuda:0", "cuda:1"]),
        ("cuda", 3, ["cuda:0", "cuda:1", "cuda:2", "cuda:0"]),
        ("cpu", 2, ["cpu"] * 4),
        ("cuda:1", 2, ["cuda:1"] * 4),
        ("cuda:2,cuda:0,cuda:1", 4, ["cuda:2", "cuda:0", "cuda:1", "cuda:2"]),
    ],
)
def test_process_j_computes_on_device_j_mod_the_number_of_them_or_of_those_named(
    name: str, devices: int, expected: list[str]
) -> None:
    for accelerated in (True, False):
        place = partial(placed, name, devices=devices, accelerated=accelerated)
        assert [place(number) for number in range(4)] == expected


@pytest.mark.parametrize(
    ("devices", "accelerated", "expected"),
    [(2, True, ["cuda:0", "cuda:1"]), (2, False, ["cpu", "cpu"]), (0, True, ["cpu", "cpu"])],
)
def test_auto_takes_devices_that_are_there_for_accelerated_updates_alone(
    devices: int, accelerated: bool, expected: list[str]
) -> None:
    place = partial(placed, "auto", devices=devices, accelerated=accelerated)
    assert [place(number) for number in range(2)] == expected


@pytest.mark.parametrize(
    ("name", "devices", "line"),
    [
        ("cuda", 0, "needs a CUDA device, and this host has none: use 'cpu' or 'auto'"),
        ("cuda:0", 0, "needs a CUDA device, and this host has none: use 'cpu' or 'auto'"),
        ("cuda:1", 1, "needs cuda:1, and this host has cuda:0: use one of them, 'cuda' or 'cpu'"),
        (
            "cuda:0,cuda:2",
            2,
            "needs cuda:2, and this host has cuda:0 to cuda:1: use one of them, 'cuda' or 'cpu'",
        ),
        *((name, 2, UNKNOWN) for name in ("cpu:1", "cuda:", "tpu", "cuda:0,cpu", "cuda,cuda")),
    ],
)
@pytest.mark.parametrize("setting", ["compute.device", "controller.device"])
def test_a_device_that_is_not_there_is_one_line_that_names_its_setting(
    name: str, devices: int, line: str, setting: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        placed(name, devices=devices, accelerated=True, setting=setting)
    assert str(raised.value) == f"{setting} = {name!r} {line}"


def test_the_device_of_a_single_process_is_the_first_of_a_list(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fullrank.algorithms.devices.visible", lambda: 2)
    assert str(device_of("cuda:1,cuda:0")) == "cuda:1"


@pytest.mark.parametrize(
    ("lacks", "line"),
    [
        ("triton", "Triton cannot be imported (import of triton halted; None in sys.modules): "),
        ("compiler", "Triton finds no C compiler: "),
    ],
)
def test_where_no_kernel_can_be_compiled_auto_stays_on_the_cpu_and_cuda_is_refused(
    lacks: str, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if lacks == "triton":
        monkeypatch.setitem(sys.modules, "triton", None)
    assert not left_out("auto", accelerated=True)
    lack_of_kernels.cache_clear()
    monkeypatch.delenv("CC")
    monkeypatch.setenv("PATH", "")
    place = partial(placed, devices=2, accelerated=True)
    assert [place("auto", number) for number in range(2)] == ["cpu", "cpu"]
    remedy = "install triton" if lacks == "triton" else "install gcc, or name a compiler in CC"
    for devices in (1, 0):
        monkeypatch.setattr("fullrank.algorithms.devices.visible", lambda there=devices: there)
        assert left_out("auto", accelerated=True) == (line + remedy if devices else "")
        assert left_out("auto", accelerated=False) == left_out("cpu", accelerated=True) == ""
    for name in ("cuda", "cuda:1"):
        with pytest.raises(ConfigError) as raised:
            place(name)
        expected = f"compute.device = {name!r} needs kernels, and {line}{remedy}; or use 'cpu'"
        assert str(raised.value) == expected
    assert place("cpu") == placed("auto", devices=2, accelerated=False) == "cpu"
