"""Assignment of devices to the processes of a host, without any device."""

import pytest

from fullrank.algorithms.devices import placed
from fullrank.common.errors import ConfigError


@pytest.mark.parametrize(
    ("name", "devices", "expected"),
    [
        ("cuda", 2, ["cuda:0", "cuda:1", "cuda:0", "cuda:1"]),
        ("auto", 3, ["cuda:0", "cuda:1", "cuda:2", "cuda:0"]),
        ("auto", 0, ["cpu"] * 4),
        ("cpu", 2, ["cpu"] * 4),
        ("cuda:1", 2, ["cuda:1"] * 4),
    ],
)
def test_process_j_computes_on_device_j_mod_their_number(
    name: str, devices: int, expected: list[str]
) -> None:
    assert [placed(name, number, devices=devices) for number in range(4)] == expected


@pytest.mark.parametrize(
    ("name", "devices", "line"),
    [
        ("cuda", 0, "needs a CUDA device, and this host has none: use 'cpu' or 'auto'"),
        ("cuda:0", 0, "needs a CUDA device, and this host has none: use 'cpu' or 'auto'"),
        ("cuda:1", 1, "is not there: this host has cuda:0; use one of them, 'cuda' or 'cpu'"),
        (
            "cuda:2",
            2,
            "is not there: this host has cuda:0 to cuda:1; use one of them, 'cuda' or 'cpu'",
        ),
        ("cpu:1", 2, "is no device: use 'auto', 'cpu', 'cuda' or 'cuda:K'"),
        ("cuda:", 2, "is no device: use 'auto', 'cpu', 'cuda' or 'cuda:K'"),
        ("tpu", 2, "is no device: use 'auto', 'cpu', 'cuda' or 'cuda:K'"),
    ],
)
@pytest.mark.parametrize("setting", ["compute.device", "controller.device"])
def test_a_device_that_is_not_there_is_one_line_that_names_its_setting(
    name: str, devices: int, line: str, setting: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        placed(name, devices=devices, setting=setting)
    assert str(raised.value) == f"{setting} = {name!r} {line}"
