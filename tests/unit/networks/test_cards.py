"""Kernels of cards: interpreted on the CPU, compiled for a card, and on one where there is one."""

import re
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fullrank.algorithms import fused_values
from fullrank.algorithms.trajectories import ENTRIES
from fullrank.common.linear_hash import LinearHash
from fullrank.common.types import Array, FloatArray
from fullrank.common.updates import snap, unit_digest
from fullrank.networks.cards import recurrent
from fullrank.networks.cards.blake3 import row_digests
from fullrank.networks.cards.linear_hash import row_hashes
from fullrank.networks.fused import products

from ..algorithms.test_fused_values import config, make, rows_of, updates

if TYPE_CHECKING:
    from triton.runtime import JITFunction

EXAMPLES = 2
"""Drawn sizes of an interpreted kernel, which takes 0.3 s for a block of BLAKE3."""


def interpreted_digests(rows: FloatArray, length: int, pairs: int) -> Array:
    """Digests by the kernels; arrays, since tensors would be sent in memory that is shared."""
    from fullrank.networks.cards import blake3_kernels

    blake3_kernels.PAIRS = pairs
    return blake3_kernels.hash_rows(torch.from_numpy(rows), length).numpy()


def drawn(rows: int, length: int, *, gap: int, turned: bool) -> FloatArray:
    """Rows with entries beyond the hashed ones, or with entries of other rows between theirs."""
    generator = np.random.Generator(np.random.Philox(key=length))
    shape = (length + gap, rows) if turned else (rows, length + gap)
    found = generator.standard_normal(shape, dtype=np.float32)
    return found.T if turned else found


def digests_of(rows: FloatArray, length: int) -> list[bytes]:
    return [unit_digest(row[:length]) for row in rows]


@settings(max_examples=EXAMPLES)
@given(
    rows=st.integers(1, 3),
    length=st.integers(1, 1300),
    gap=st.integers(0, 3),
    turned=st.booleans(),
    pairs=st.sampled_from([1, 2, 128]),
)
@example(rows=2, length=1, gap=0, turned=False, pairs=128)
@example(rows=2, length=256, gap=1, turned=True, pairs=128)
@example(rows=2, length=1025, gap=0, turned=False, pairs=1)
def test_digests_of_rows_are_those_of_units(
    interpreter: ProcessPoolExecutor, rows: int, length: int, gap: int, turned: bool, pairs: int
) -> None:
    values = drawn(rows, length, gap=gap, turned=turned)
    expected = digests_of(values, length)
    found = interpreter.submit(interpreted_digests, values, length, pairs).result()
    assert [row.tobytes() for row in found] == expected
    host = row_digests(torch.from_numpy(values), length)
    assert [row.tobytes() for row in host.numpy()] == expected


@pytest.mark.gpu
@settings(max_examples=30)
@given(
    rows=st.integers(1, 8),
    length=st.integers(1, 3_000_000),
    gap=st.integers(0, 3),
    turned=st.booleans(),
)
@example(rows=3, length=1, gap=0, turned=False)
@example(rows=3, length=255, gap=0, turned=False)
@example(rows=3, length=256, gap=0, turned=False)
@example(rows=3, length=257, gap=0, turned=True)
@example(rows=2, length=65_537, gap=0, turned=False)
@example(rows=2, length=31_000_001, gap=1, turned=False)
def test_digests_of_rows_on_a_card_are_those_of_units(
    rows: int, length: int, gap: int, turned: bool
) -> None:
    values = drawn(rows, length, gap=gap, turned=turned)
    found = row_digests(torch.from_numpy(values).cuda(), length).cpu().numpy()
    assert [row.tobytes() for row in found] == digests_of(values, length)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_linear_hashes_of_rows_are_those_of_units(device: str) -> None:
    hashing = LinearHash(40_000, key=3)
    rows = snap(drawn(3, 30_000, gap=0, turned=False).clip(-0.5, 0.5))
    weights = torch.from_numpy(hashing.weights.view(np.int64).copy())
    found = row_hashes(torch.from_numpy(rows).to(device), weights.to(device)).cpu().numpy()
    assert np.array_equal(found.view(np.uint64), hashing.of(rows))


@pytest.mark.gpu
def test_a_captured_graph_hashes_what_lies_in_its_rows_when_it_is_replayed() -> None:
    length = 100_000
    first, second = (drawn(3, length, gap=gap, turned=False)[:, :length] for gap in (0, 1))
    rows = torch.from_numpy(first.copy()).cuda()
    row_digests(rows, length)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = row_digests(rows, length)
    for values in (second, first):
        rows.copy_(torch.from_numpy(values.copy()))
        graph.replay()
        assert [row.tobytes() for row in found.cpu().numpy()] == digests_of(values, length)


LENGTHS = [3, 17, 5, 4, 2, 6]
"""Steps of the episodes of two units: more than a chunk, and less."""
COMPANIES = [[0], [1], [1, 0]]


def in_order(left: FloatArray, right: FloatArray, dtype: type) -> FloatArray:
    """A product that adds in one order, as a card does; BLAS has an order for each place in it."""
    sums: FloatArray = np.zeros((len(left), right.shape[1]), dtype)
    for column, row in zip(left.T, right, strict=True):
        sums += column[:, None] * row
    return sums


def computed(companies: list[list[int]]) -> list[Mapping[int, FloatArray]]:
    """Updates of the units of each company."""
    algorithm = make(config("qmix", micro_batches=2, mixing=8, hypernet=9))
    rows = rows_of(algorithm, LENGTHS)
    return [updates(algorithm, rows, company) for company in companies]


def computed_by_kernels(companies: list[list[int]]) -> list[Mapping[int, FloatArray]]:
    """Updates by the kernels, whose states are two tiles wide."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(np, "matmul", in_order)
        patch.setattr(recurrent, "SIZES", (16,))
        for module in (products, fused_values):
            patch.setattr(module, "takes_kernels", lambda device: True)
        return computed(companies)


@pytest.fixture(scope="module")
def by_kernels(interpreter: ProcessPoolExecutor) -> list[Mapping[int, FloatArray]]:
    return interpreter.submit(computed_by_kernels, COMPANIES).result()


def test_a_unit_alone_has_its_bits_of_every_company(
    by_kernels: list[Mapping[int, FloatArray]],
) -> None:
    alone = {unit: update.tobytes() for each in by_kernels[:2] for unit, update in each.items()}
    for company, together in zip(COMPANIES, by_kernels, strict=True):
        assert {unit: update.tobytes() for unit, update in together.items()} == {
            unit: alone[unit] for unit in company
        }


def test_passes_by_kernels_are_those_of_the_cpu_but_for_rounding(
    by_kernels: list[Mapping[int, FloatArray]],
) -> None:
    (expected,) = computed([[0, 1]])
    for unit, update in by_kernels[2].items():
        (gradient, entries), (stated, sums) = (
            np.split(each, [-ENTRIES.size]) for each in (update, expected[unit])
        )
        np.testing.assert_allclose(gradient, stated, rtol=0, atol=1e-5 * np.abs(stated).max())
        assert ENTRIES.sums(entries) == pytest.approx(ENTRIES.sums(sums), rel=1e-5, abs=1e-6)


def multiplied(left: FloatArray, right: FloatArray, tiles: object, matrices: int) -> FloatArray:
    """A product by the kernel, added to ones."""
    from fullrank.networks.cards import products_kernels

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(np, "matmul", in_order)
        patch.setattr(products_kernels, "TILES", tiles)
        patch.setattr(products_kernels, "MATRICES", matrices)
        out = torch.ones(len(left), left.shape[1], right.shape[2])
        products_kernels.multiply(torch.from_numpy(left), torch.from_numpy(right), out, adds=True)
        return out.numpy()


def test_bits_of_a_product_depend_neither_on_the_tiles_nor_on_the_other_matrices(
    interpreter: ProcessPoolExecutor,
) -> None:
    generator = np.random.Generator(np.random.Philox(key=0))
    left, right = (
        generator.standard_normal(shape, dtype=np.float32) for shape in ((3, 35, 21), (3, 21, 33))
    )
    ways = [(((32, 16), (16, 16)), 2), (((64, 8), (16, 16)), 3), (((64, 8), (32, 16)), 1)]
    found = [interpreter.submit(multiplied, left, right, *way).result() for way in ways]
    alone = interpreter.submit(multiplied, left[2:], right[2:], *ways[0]).result()
    np.testing.assert_allclose(found[0], left @ right + 1, rtol=0, atol=1e-5)
    assert all(each.tobytes() == found[0].tobytes() for each in found)
    assert alone.tobytes() == found[0][2:].tobytes()


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("rows", "depth", "columns"), [(70, 33, 66), (256, 1025, 272), (5, 300, 64)]
)
def test_a_product_on_a_card_has_its_bits_in_any_company_and_by_tiles_of_any_size(
    rows: int, depth: int, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fullrank.networks.cards import products_kernels

    generator = torch.Generator().manual_seed(0)
    left, right = (
        torch.randn(4, *shape, generator=generator).cuda()
        for shape in ((rows, depth), (depth, columns))
    )

    def product(units: slice) -> torch.Tensor:
        own = left[units], right[units]
        return products.batched_product(*own, left.new_empty(len(own[0]), rows, columns))

    together = product(slice(4))
    exact = left.double() @ right.double()
    assert (together - exact).abs().max() <= 1e-5 * exact.abs().max()
    assert all(torch.equal(product(slice(u, u + 1))[0], together[u]) for u in range(4))
    monkeypatch.setattr(products_kernels, "TILES", products_kernels.TILES[1:] * 2)
    assert torch.equal(product(slice(4)), together)


def compiled(kernel: "JITFunction[Any]", types: str, **constants: int) -> Mapping[str, Any]:
    """Compile a kernel for compute capability 9.0."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    names = [name for name in kernel.arg_names if name not in constants]
    signature = dict(zip(names, types.split(), strict=True)) | dict.fromkeys(constants, "constexpr")
    source = ASTSource(kernel, signature, constants)
    found: Mapping[str, Any] = triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm
    return found


def test_every_kernel_compiles_for_a_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton", reason="triton is made for Linux on x86-64")
    from fullrank.networks.cards import blake3_kernels, products_kernels, recurrent_kernels

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    compiled(blake3_kernels.hash_chunks, "*u32 i64 i32 i32 i32 *u32", stride=1, LANES=128)
    compiled(blake3_kernels.join_nodes, "*u32 i32 *u32", LANES=128)
    tiles = "*fp32 *fp32 *fp32 i32 i32 i32 i32 i32 i32 i32 i32 i32"
    product, straight = products_kernels.multiply_tiles, {"right_column": 1, "out_column": 1}
    for tile, terms in products_kernels.TILES:
        sizes = {"TILE": tile, "TERMS": terms}
        compiled(product, tiles, left_row=1, **straight, ADDS=True, **sizes)
        text = compiled(product, tiles, left_column=1, **straight, ADDS=False, **sizes)["ptx"]
        assert "fma.rn.f32" in text
        assert not re.search(r"\badd(\.\w+)*\.f32|mma", text)  # one chain of terms for each sum
    widths = {"WIDE": 64, "SIZE": 32, "ROWS": recurrent_kernels.ROWS}
    forward = "*fp32 *fp32 *fp32 *fp32 *fp32 *fp32 *fp32 i32 i32 i32 i32"
    compiled(recurrent_kernels.recur, forward, CHUNK=16, **widths)
    backward = "*fp32 *fp32 *fp32 *fp32 *fp32 i32 i32"
    compiled(recurrent_kernels.recur_back, backward, **widths)
