"""Logarithm, power and tails of distributions that are the same on every processor.

Libraries of mathematics differ in the last bits from one processor to another, and a plan that
rests on them may differ, too. These functions use operations that IEEE 754 rounds alike everywhere,
in a fixed order.
"""

import numpy as np

from fullrank.common.types import BoolArray, IntArray, Matrix, Times, Vector

LN2 = 0.6931471805599453
LARGEST = 1400.0
"""Larger arguments of a tail count as this one; the square root of e^-LARGEST is still normal."""
ERFC = (
    *(0.17087277, -0.82215223, 1.48851587, -1.13520398, 0.27886807),
    *(-0.18628806, 0.09678418, 0.37409196, 1.00002368, -1.26551223),
)
"""Coefficients of log(erfc(z) e^(z^2) / t) in t = 1 / (1 + z / 2), the highest power first; the
relative error is below 1.2e-7 [Press92, section 6.2]."""


def log(values: Times) -> Times:
    """Natural logarithm of positive numbers, to 1e-15 or so."""
    mantissa, exponent = np.frexp(values)
    ratio = (mantissa - 1.0) / (mantissa + 1.0)
    series = np.zeros_like(ratio)
    for odd in range(33, 0, -2):
        series = series * (ratio * ratio) + 1.0 / odd
    return np.asarray(2.0 * ratio * series + exponent * LN2)


def exp(values: Times) -> Times:
    """Exponential function, to 1e-14 or so."""
    whole = np.rint(np.asarray(values) / LN2)
    rest, series = values - whole * LN2, np.ones_like(whole)
    for factor in range(15, 0, -1):
        series = 1.0 + series * rest / factor
    return np.asarray(np.ldexp(series, whole.astype(np.int64)))


def power(base: float, exponents: IntArray) -> Times:
    """Whole powers of a number, by repeated multiplication.

    >>> power(0.5, np.array([0, 3])).tolist()
    [1.0, 0.125]
    """
    table = np.full(int(exponents.max(initial=0)) + 1, base)
    table[0] = 1.0
    return np.asarray(np.multiply.accumulate(table)[exponents])


def gamma_tail(halves: IntArray, values: Times) -> Times:
    """P(X > value) for a gamma variable X of shape ``halves`` / 2; 1 where it is large anyway.

    Half of a chi-squared variable of n degrees of freedom has n halves, a sum of n exponential ones
    2 n. The tail of shape a + 1 is that of a and x^a e^-x / Gamma(a + 1).
    """
    x = np.minimum(values, LARGEST)
    root, odd = np.sqrt(x), halves % 2 == 1
    decay = exp(-x / 2)  # twice: as one factor it would vanish too soon
    t = 1.0 / (1.0 + root / 2)
    series = np.zeros_like(t)
    for coefficient in ERFC:
        series = series * t + coefficient
    tail = np.where(odd, t * exp(series), 1.0) * decay
    term = np.where(odd, 2 / np.sqrt(np.pi) * root, x) * decay
    shape = np.where(odd, 0.5, 1.0)
    while (rising := shape < halves / 2).any():
        tail = tail + np.where(rising, term, 0.0)
        shape = shape + rising
        term = np.where(rising, term * x / shape, term)
    return np.where(x > halves / 2, tail * decay, 1.0)


def product(zeros_and_ones: Matrix | BoolArray, values: Vector, *, digits: int) -> Vector:
    """A product with a matrix of zeros and ones, with values rounded to so many binary places.

    Partial sums are exact as long as 2^``digits`` times their size stays below 2^53, so that no
    order of summation changes the product.
    """
    scale = 2.0**digits
    return np.asarray(zeros_and_ones @ np.rint(values * scale) / scale)
