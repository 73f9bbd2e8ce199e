"""Steps of the recurrent layers of value-based teams, all of a chunk in one launch.

A program takes a tile of rows through the steps, which it keeps apart by barriers: rows never meet,
and the sums of a row have one order. Symbols are those of ``fused.recurrent``.
"""

import triton
import triton.language as tl

ROWS = 16


@triton.jit(do_not_specialize=["steps", "total", "own"])
def recur(
    below: tl.tensor,
    states: tl.tensor,
    change: tl.tensor,
    gates: tl.tensor,
    inner: tl.tensor,
    outer: tl.tensor,
    bias: tl.tensor,
    network_stride: tl.tensor,
    steps: tl.tensor,
    total: tl.tensor,
    own: tl.tensor,
    CHUNK: tl.constexpr,
    WIDE: tl.constexpr,
    SIZE: tl.constexpr,
    ROWS: tl.constexpr,
) -> None:
    """Compute the states after each step, and of the online network what its backward pass reads.

    Args:
        below: Outputs of the first layers, (2, units, CHUNK, own, WIDE).
        states: States before each step and after the last, (2, CHUNK + 1, total, WIDE).
        change: k - s, (CHUNK, total, WIDE).
        gates: [s | r | z | 2 (V_n h + c_n)], (CHUNK, total, 4 WIDE).
        inner: Weights of [n | r | z] from below, (2, WIDE, 3 WIDE).
        outer: Weights of [r | z | V_n h] from the states, (2, WIDE, 3 WIDE).
        bias: Of [n | r | z | V_n h], (2, 4 WIDE).
        network_stride: Distance of the networks in ``inner`` and ``outer``.
        steps: Number of steps.
        total: Rows of all units.
        own: Rows of one unit.
        CHUNK: Most steps.
        WIDE: Width of a state.
        SIZE: Width of a tile, which divides WIDE.
        ROWS: Rows of a program.
    """
    network, term = tl.program_id(1).to(tl.int64), tl.arange(0, SIZE)
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    known = row < total
    below += ((network * (total // own) + row // own) * CHUNK * own + row % own) * WIDE
    states += (network * (CHUNK + 1) * total + row) * WIDE
    inner += network * network_stride
    outer += network * network_stride
    bias += network * 4 * WIDE
    for step in range(steps):
        for first in range(0, WIDE, SIZE):
            column = first + term[None, :]
            blank = tl.zeros((ROWS, SIZE), tl.float32)
            new, reset = blank + tl.load(bias + column), blank + tl.load(bias + WIDE + column)
            keep = blank + tl.load(bias + 2 * WIDE + column)
            feed = blank + tl.load(bias + 3 * WIDE + column)
            for start in range(0, WIDE, SIZE):
                x = tl.load(
                    below + step * own * WIDE + start + term[None, :], mask=known, other=0.0
                )
                h = tl.load(
                    states + step * total * WIDE + start + term[None, :], mask=known, other=0.0
                )
                place = (start + term[:, None]) * 3 * WIDE + column
                new = tl.dot(x, tl.load(inner + place), new, input_precision="ieee")
                reset = tl.dot(x, tl.load(inner + WIDE + place), reset, input_precision="ieee")
                keep = tl.dot(x, tl.load(inner + 2 * WIDE + place), keep, input_precision="ieee")
                reset = tl.dot(h, tl.load(outer + place), reset, input_precision="ieee")
                keep = tl.dot(h, tl.load(outer + WIDE + place), keep, input_precision="ieee")
                feed = tl.dot(h, tl.load(outer + 2 * WIDE + place), feed, input_precision="ieee")
            reset, keep = tl.sigmoid(reset), tl.sigmoid(keep)
            new = tl.sigmoid(new + feed * reset)
            before = tl.load(states + step * total * WIDE + column, mask=known, other=0.0)
            moved = 0.5 * before + 0.5 - new
            after = 2.0 * (new + keep * moved) - 1.0
            tl.store(states + (step + 1) * total * WIDE + column, after, mask=known)
            online = known & (network == 0)
            tl.store(change + (step * total + row) * WIDE + column, moved, mask=online)
            saved = gates + (step * total + row) * 4 * WIDE + column
            tl.store(saved, new, mask=online)
            tl.store(saved + WIDE, reset, mask=online)
            tl.store(saved + 2 * WIDE, keep, mask=online)
            tl.store(saved + 3 * WIDE, feed, mask=online)
        tl.debug_barrier()


@triton.jit(do_not_specialize=["steps", "total"])
def recur_back(
    above: tl.tensor,
    carry: tl.tensor,
    change: tl.tensor,
    gates: tl.tensor,
    back: tl.tensor,
    steps: tl.tensor,
    total: tl.tensor,
    WIDE: tl.constexpr,
    SIZE: tl.constexpr,
    ROWS: tl.constexpr,
) -> None:
    """Turn the gates of each step into gradients, from the last step to the first.

    Args:
        above: Gradients at k after each step, (CHUNK, total, WIDE).
        carry: Gradient at k before the first step, to which its parts are added, (total, WIDE).
        change: As in ``recur``.
        gates: As in ``recur``, and then the gradients at [2 b | a | 2 (V_n h + c_n)].
        back: Transposed weights of [r | z | V_n h] from k, (3 WIDE, WIDE).
        steps: Number of steps.
        total: Rows of all units.
        WIDE: Width of a state.
        SIZE: Width of a tile, which divides WIDE.
        ROWS: Rows of a program.
    """
    term = tl.arange(0, SIZE)
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    known = row < total
    for number in range(steps):
        step = steps - 1 - number
        place = (step * total + row) * WIDE
        earlier = tl.where(step == 0, carry + row * WIDE, above + place - total * WIDE)
        own = gates + 4 * place
        for first in range(0, WIDE, SIZE):
            column = first + term[None, :]
            gradient = tl.load(above + place + column, mask=known, other=0.0)
            moved = tl.load(change + place + column, mask=known, other=0.0)
            new = tl.load(own + column, mask=known, other=0.0)
            reset = tl.load(own + WIDE + column, mask=known, other=0.0)
            keep = tl.load(own + 2 * WIDE + column, mask=known, other=0.0)
            feed = tl.load(own + 3 * WIDE + column, mask=known, other=0.0)
            kept = gradient * keep
            at_new = (gradient - kept) * new * (1.0 - new)
            at_reset = at_new * feed * reset * (1.0 - reset)
            at_keep = gradient * moved * keep * (1.0 - keep)
            tl.store(own + column, at_new, mask=known)
            tl.store(own + WIDE + column, at_reset, mask=known)
            tl.store(own + 2 * WIDE + column, at_keep, mask=known)
            tl.store(own + 3 * WIDE + column, at_new * reset, mask=known)
            kept += tl.load(earlier + column, mask=known, other=0.0)
            tl.store(earlier + column, kept, mask=known)
        tl.debug_barrier()
        for first in range(0, WIDE, SIZE):
            column = first + term[None, :]
            sums = tl.load(earlier + column, mask=known, other=0.0)
            for start in range(0, 3 * WIDE, SIZE):
                x = tl.load(own + WIDE + start + term[None, :], mask=known, other=0.0)
                y = tl.load(back + (start + term[:, None]) * WIDE + column)
                sums = tl.dot(x, y, sums, input_precision="ieee")
            tl.store(earlier + column, sums, mask=known)
        tl.debug_barrier()
