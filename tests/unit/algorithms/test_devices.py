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
    ("name", "devices", "message"),
    [
        ("cuda", 0, "device 'cuda' is not available here; use 'cpu' or 'auto'"),
        ("cuda:0", 0, "device 'cuda:0' is not available here"),
        ("cuda:2", 2, "device 'cuda:2' is not available here: this host has cuda:0 to cuda:1"),
        ("cpu:1", 2, "unknown device 'cpu:1'"),
        ("cuda:", 2, "unknown device 'cuda:'"),
        ("tpu", 2, "unknown device 'tpu'"),
    ],
)
def test_devices_that_are_not_there_are_named_in_one_line(
    name: str, devices: int, message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as raised:
        placed(name, devices=devices)
    assert "\n" not in str(raised.value)
