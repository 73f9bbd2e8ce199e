"""Gumbel noise of NumPy's keyed streams, and a logarithm that is defined to the bit.

Source: Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011:
Philox4x64-10, of which NumPy counts blocks from 1. A block has four words of 64 bits, and so eight
halves, the lower first; a uniform number is the upper 24 bits of a half.

The logarithm is sums, products and quotients in float64, each rounded as IEEE 754 has it: launches
without fused multiplications and additions have the bits of any processor.
"""

import math

import triton
import triton.language as tl

LANES, BLOCK = 128, 8
"""Blocks of one program, one for each of its threads; numbers of a block."""
UNFUSED = {"enable_fp_fusion": False}
"""Options of a launch."""

_HALVES = tl.constexpr(BLOCK)
_FACTORS = tl.constexpr((0xD2E7470EE14C6C93, 0xCA5A826395121157))
_STEPS = tl.constexpr((0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B))
"""Factors of a round of Philox, and what a round adds to its keys."""
_SMALLEST = tl.constexpr(2.0**-25)
"""Stands for a uniform number of 0, as ``fullrank.networks.heads`` has it."""
_ROOT_HALF = tl.constexpr(0x3FE6A09E667F3BCD)
"""Bits of the square root of 1/2, in float64."""
_LOG_2 = tl.constexpr(math.log(2.0))
_LAST = tl.constexpr(19)
"""Power of the last term of the series."""


@triton.jit
def _logarithm(x: tl.tensor) -> tl.tensor:
    """Return k log 2 + 2 artanh s, s = (m - 1) / (m + 1), for x = 2^k m, sqrt(1/2) <= m < sqrt 2.

    artanh s = s (1 + s^2 / 3 + s^4 / 5 + ...), of which terms from s^21 on are below 2^-55.
    """
    bits = x.to(tl.int64, bitcast=True)
    k = (bits - _ROOT_HALF) >> 52
    m = (bits - (k << 52)).to(tl.float64, bitcast=True)
    s = (m - 1.0) / (m + 1.0)
    square = s * s
    series = tl.full(s.shape, 1.0 / _LAST, tl.float64)
    for power in tl.static_range(_LAST - 2, 0, -2):
        series = series * square + 1.0 / power
    return k.to(tl.float64) * _LOG_2 + 2.0 * s * series


@triton.jit
def _word(place: tl.tensor) -> tl.tensor:
    """Load a word of 64 bits as two halves, the lower first."""
    low = tl.load(place).to(tl.uint32, bitcast=True).to(tl.uint64)
    high = tl.load(place + 1).to(tl.uint32, bitcast=True).to(tl.uint64)
    return low | (high << 32)


@triton.jit(do_not_specialize=["size", "columns", "stride"])
def fill(
    keys: tl.tensor,
    out: tl.tensor,
    size: tl.tensor,
    columns: tl.tensor,
    stride: tl.tensor,
    LANES: tl.constexpr,
) -> None:
    """Store -log(-log u) of the first numbers of a stream, a block in every lane.

    Args:
        keys: Keys of the streams, int32, (streams, 4).
        out: Noise, float32, (streams, rows, stride).
        size: Numbers of a stream.
        columns: Numbers of a row, at most its stride.
        stride: Distance of rows.
        LANES: Blocks of a program.
    """
    own = tl.program_id(1).to(tl.int64)
    first, second = _word(keys + 4 * own), _word(keys + 4 * own + 2)
    block = tl.program_id(0) * LANES + tl.arange(0, LANES)
    a = block.to(tl.uint64) + 1
    b, c, d = tl.zeros_like(a), tl.zeros_like(a), tl.zeros_like(a)
    for _ in tl.static_range(10):
        high, low = tl.umulhi(a, _FACTORS[0]), a * _FACTORS[0]
        upper, lower = tl.umulhi(c, _FACTORS[1]), c * _FACTORS[1]
        a, b, c, d = upper ^ b ^ first, lower, high ^ d ^ second, low
        first, second = first + _STEPS[0], second + _STEPS[1]
    out += own * (size // columns) * stride
    for half in tl.static_range(_HALVES):
        word = (a, b, c, d)[half // 2] >> (32 * (half % 2))
        bits = (word & 0xFFFFFFFF) >> 8
        uniform = tl.maximum(bits.to(tl.float64) * 2.0**-24, _SMALLEST)
        noise = -_logarithm(-_logarithm(uniform))
        number = block * _HALVES + half
        place = out + (number // columns) * stride + number % columns
        tl.store(place, noise.to(tl.float32), mask=number < size)
