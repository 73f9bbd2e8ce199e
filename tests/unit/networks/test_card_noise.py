"""Noise of cards: interpreted on the CPU, compiled for a card, and on a card where there is one."""

import math
import re
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from fullrank.algorithms import EnvironmentSpec
from fullrank.algorithms.base import layout_of
from fullrank.algorithms.maddpg import MADDPG
from fullrank.common.seeding import key, stream
from fullrank.common.types import FloatArray
from fullrank.environments.base import ActionSpec, AgentSpec, Continuous, Discrete, MultiDiscrete
from fullrank.networks import heads
from fullrank.networks.cards.noise import fill_gumbel
from fullrank.networks.fused.unit_batch import STATISTICS

Doubles = NDArray[np.float64]

STREAMS = [(4198,), (51805,), (1, 2)]
"""Indices of streams: number 129 of the first one is 0, number 572 of the second 1 - 2^-24."""
ROWS, SIZE, WIDTH = 5, 117, 120


def logarithm(x: Doubles) -> Doubles:
    """The logarithm of ``noise_kernels``, in NumPy."""
    bits = x.view(np.int64)
    k = (bits - np.array(0.5**0.5).view(np.int64)) >> 52
    m = (bits - (k << 52)).view(np.float64)
    s = (m - 1.0) / (m + 1.0)
    square, series = s * s, np.full(s.shape, 1.0 / 19)
    for power in range(17, 0, -2):
        series = series * square + 1.0 / power
    found: Doubles = k.astype(np.float64) * math.log(2.0) + 2.0 * s * series
    return found


def gumbel(uniform: FloatArray) -> FloatArray:
    """Noise by the logarithm of ``noise_kernels``."""
    above_zero = np.maximum(uniform.astype(np.float64), 2.0**-25)
    return (-logarithm(-logarithm(above_zero))).astype(np.float32)


def expected_noise() -> FloatArray:
    """Noise of the streams, in a buffer that is wider than they need."""
    uniform = (stream(0, "noise", *name).random((ROWS, SIZE), np.float32) for name in STREAMS)
    padded = [np.pad(gumbel(each), ((0, 0), (0, WIDTH - SIZE))) for each in uniform]
    return np.stack(padded)


def keys() -> NDArray[np.int32]:
    return np.stack([key(0, "noise", *name) for name in STREAMS])


def interpreted_noise(words: NDArray[np.int32]) -> FloatArray:
    """Noise by the kernel, over what lay in the buffer."""
    out = torch.full((len(words), ROWS, WIDTH), torch.nan)
    found: FloatArray = fill_gumbel(out, torch.from_numpy(words), SIZE).numpy()
    return found


def test_noise_of_a_stream_has_the_bits_of_the_defined_logarithm_in_every_company(
    interpreter: ProcessPoolExecutor,
) -> None:
    expected = expected_noise()
    assert expected[0].flat[129 // SIZE * WIDTH + 129 % SIZE] == expected[0].min()
    assert expected[1].flat[572 // SIZE * WIDTH + 572 % SIZE] == expected[1].max()
    for company in ([0, 1, 2], [2, 0], [1]):
        found = interpreter.submit(interpreted_noise, keys()[company]).result()
        assert found.tobytes() == expected[company].tobytes()


def test_noise_is_the_nearest_number_to_the_exact_one_or_its_neighbour() -> None:
    every = np.arange(1, 2**24, dtype=np.float32) * np.float32(2.0**-24)
    near_one = every[np.abs(every + np.expm1(-1.0)) < 1e-3]  # log(-log u) is near 0
    uniform = np.concatenate([every[:5000], every[::97], near_one, every[-5000:]])
    exact = -np.log(-np.log(uniform.astype(np.longdouble)))
    nearest = exact.astype(np.float32)
    assert (np.abs(gumbel(uniform) - exact) <= np.spacing(np.abs(nearest))).all()


ACTIONS: tuple[ActionSpec, ...] = (
    Discrete(3, relaxed=True),
    MultiDiscrete((2, 3)),
    Continuous((-1.0, -1.0), (1.0, 1.0)),
)
AGENTS = tuple(
    AgentSpec(name=f"agent_{index}", observation_size=4, action=action)
    for index, action in enumerate(ACTIONS)
)
GRADIENT = -2 * len(STATISTICS)
"""Where the gradient of an update ends, behind which lie its statistics."""
COMPANIES = [[0, 1, 2], [2, 0], [1]]


def updates(*, there: bool, layers: int) -> list[dict[int, FloatArray]]:
    """Updates of units in companies, with noise that is drawn on the card or on the host."""
    algorithm = MADDPG(batch_size=10, hidden=8, hidden_layers=layers).make(
        EnvironmentSpec(agents=AGENTS), seed=0, device="cpu"
    )
    rows = layout_of(AGENTS).synthetic(stream(0, "rows"), 10)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(heads, "draws_there", lambda device: there)
        compute = partial(algorithm.gradients.compute, rows, iteration=1)
        return [dict(compute(units)) for units in COMPANIES]


@pytest.mark.parametrize("layers", [2, 3])  # hand-written passes, and autograd
def test_noise_of_the_card_changes_updates_by_rounding_alone_and_not_by_company(
    interpreter: ProcessPoolExecutor, layers: int
) -> None:
    found = interpreter.submit(updates, there=True, layers=layers).result()
    expected, *_ = updates(there=False, layers=layers)
    for together in found:
        for unit, update in together.items():
            assert update.tobytes() == found[0][unit].tobytes()
            own, near = (each[unit][:GRADIENT] for each in (together, expected))
            np.testing.assert_allclose(own, near, rtol=0, atol=1e-5 * np.abs(near).max())
    assert any(found[0][unit].tobytes() != expected[unit].tobytes() for unit in (0, 1))


@pytest.mark.gpu
def test_a_captured_graph_draws_the_noise_of_the_keys_that_lie_there() -> None:
    words, out = torch.from_numpy(keys()).cuda(), torch.zeros(len(STREAMS), ROWS, WIDTH).cuda()
    expected = expected_noise()
    assert fill_gumbel(out, words, SIZE).cpu().numpy().tobytes() == expected.tobytes()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        fill_gumbel(out, words, SIZE)
    words.copy_(words.flip(0))
    graph.replay()
    assert out.cpu().numpy().tobytes() == expected[::-1].tobytes()


def test_noise_is_compiled_without_fused_operations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton", reason="triton is made for Linux on x86-64")
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from fullrank.networks.cards import noise_kernels

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    types = {"keys": "*i32", "out": "*fp32", "size": "i32", "columns": "i32", "stride": "i32"}
    source = ASTSource(noise_kernels.fill, types | {"LANES": "constexpr"}, {"LANES": 128})
    card = GPUTarget("cuda", 90, 32)
    found = triton.compile(source, target=card, options=noise_kernels.UNFUSED).asm
    operations = set(re.findall(r"\b(?:add|sub|mul|div|fma)[a-z.]*\.f64\b", found["ptx"]))
    assert operations == {"add.rn.f64", "sub.rn.f64", "mul.rn.f64", "div.rn.f64"}
