"""BLAKE3 of many rows: all chunks in parallel, then their trees, eight levels in one launch.

Source: O'Connor, Aumasson, Neves and Wilcox-O'Hearn, "BLAKE3: one function, fast everywhere", 2020,
section 2. A left subtree has a power of two of chunks: on every level nodes pair with their
neighbours, and a last one without a neighbour rises unchanged.

Words are 32 bits; h is a chaining value of eight words, m a block of sixteen. A tensor holds one
word of many chunks or nodes.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from fullrank.common.updates import DIGEST_BYTES

CHUNKS = 128
"""Chunks of one program: one for each of its threads."""
PAIRS = 128
"""Pairs of nodes of one program."""

_CHUNK, _BLOCK, _STATE = tl.constexpr(256), tl.constexpr(16), tl.constexpr(8)
"""Words of a chunk, of a block and of h."""
_CHUNK_START, _CHUNK_END, _PARENT, _ROOT = (tl.constexpr(1 << bit) for bit in range(4))


@triton.jit
def _first(like: tl.tensor) -> tl.tuple:
    """Return the h that every chunk and parent begins with."""
    zero = tl.zeros_like(like)
    low = zero + 0x6A09E667, zero + 0xBB67AE85, zero + 0x3C6EF372, zero + 0xA54FF53A
    return low + (zero + 0x510E527F, zero + 0x9B05688C, zero + 0x1F83D9AB, zero + 0x5BE0CD19)


@triton.jit
def _compressed(
    h: tl.tuple, m: tl.tuple, counter: tl.tensor, size: tl.tensor, flags: tl.tensor
) -> tl.tuple:
    """Return h after a block of ``size`` bytes; a, b, c, d are the rows of its state."""
    zero = tl.zeros_like(h[0])
    a, b, c = h[:4], h[4:], _first(zero)[:4]
    d = zero + counter, zero, zero + size, zero + flags
    for _ in tl.static_range(7):
        for half in tl.static_range(2):
            for column in tl.static_range(4):
                w, x, y, z = a[0], b[0], c[0], d[0]
                w += x + m[8 * half + 2 * column]
                z ^= w
                z = (z >> 16) | (z << 16)
                y += z
                x ^= y
                x = (x >> 12) | (x << 20)
                w += x + m[8 * half + 2 * column + 1]
                z ^= w
                z = (z >> 8) | (z << 24)
                y += z
                x ^= y
                x = (x >> 7) | (x << 25)
                a, b, c, d = a[1:] + (w,), b[1:] + (x,), c[1:] + (y,), d[1:] + (z,)
            if half == 0:  # diagonals become columns, and columns again
                b, c, d = b[1:] + b[:1], c[2:] + c[:2], d[3:] + d[:3]
            else:
                b, c, d = b[3:] + b[:3], c[2:] + c[:2], d[1:] + d[:1]
        low = m[2], m[6], m[3], m[10], m[7], m[0], m[4], m[13]
        m = low + (m[1], m[11], m[12], m[5], m[9], m[14], m[15], m[8])
    upper = a[0] ^ c[0], a[1] ^ c[1], a[2] ^ c[2], a[3] ^ c[3]
    return upper + (b[0] ^ d[0], b[1] ^ d[1], b[2] ^ d[2], b[3] ^ d[3])


@triton.jit
def _chosen(condition: tl.tensor, h: tl.tuple, other: tl.tuple) -> tl.tuple:
    """Return h where a condition holds, else the other one."""
    found: tl.tuple = ()
    for word in tl.static_range(_STATE):
        found = found + (tl.where(condition, h[word], other[word]),)
    return found


@triton.jit
def _columns(block: tl.tensor) -> tl.tuple:
    """Split a matrix into its sixteen columns."""
    parts: tl.tuple = (block,)
    for _ in tl.static_range(4):
        halves: tl.tuple = ()
        for part in tl.static_range(len(parts)):
            whole = parts[part]
            pair = tl.reshape(whole, (whole.shape[0], 2, whole.shape[1] // 2))
            low, high = tl.split(tl.permute(pair, (0, 2, 1)))
            halves = halves + (low, high)
        parts = halves
    found: tl.tuple = ()
    for part in tl.static_range(len(parts)):
        found = found + (tl.reshape(parts[part], (block.shape[0],)),)
    return found


@triton.jit(do_not_specialize=["length", "count", "chunks"])
def hash_chunks(
    rows: tl.tensor,
    row_stride: tl.tensor,
    stride: tl.tensor,
    length: tl.tensor,
    count: tl.tensor,
    chunks: tl.tensor,
    out: tl.tensor,
    LANES: tl.constexpr,
) -> None:
    """Store h of the chunks of ``count`` rows, shape (rows, 8, chunks), one in every lane."""
    place = tl.program_id(0) * LANES + tl.arange(0, LANES)
    row, chunk = (place // chunks).to(tl.int64), place % chunks
    words = tl.where(row < count, tl.minimum(length - chunk * _CHUNK, _CHUNK), 0)
    own = rows + row * row_stride + chunk.to(tl.int64) * (_CHUNK * stride)
    end = tl.where(chunks == 1, _CHUNK_END | _ROOT, _CHUNK_END)
    h = _first(tl.zeros((LANES,), tl.uint32))
    for start in range(0, tl.minimum(length, _CHUNK), _BLOCK):
        word = start + tl.arange(0, _BLOCK)
        at = own[:, None] + (word * stride)[None, :]
        block = tl.load(at, mask=word[None, :] < words[:, None], other=0)
        left = tl.minimum(words - start, _BLOCK)
        flags = tl.where(start == 0, _CHUNK_START, 0) + tl.where(words - start <= _BLOCK, end, 0)
        size = (4 * left).to(tl.uint32)
        after = _compressed(h, _columns(block), chunk.to(tl.uint32), size, flags.to(tl.uint32))
        h = _chosen(left > 0, after, h)
    for word in tl.static_range(_STATE):
        tl.store(out + (row * _STATE + word) * chunks + chunk, h[word], mask=row < count)


@triton.jit(do_not_specialize=["count"])
def join_nodes(nodes: tl.tensor, count: tl.tensor, out: tl.tensor, LANES: tl.constexpr) -> None:
    """Join the nodes of a row, shape (rows, 8, count), each 2 LANES neighbours into one."""
    program, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    lane, first = tl.arange(0, LANES), program * 2 * LANES
    lower: tl.tuple = ()
    upper: tl.tuple = ()
    for word in tl.static_range(_STATE):
        at, own = first + 2 * lane, nodes + (row * _STATE + word) * count
        lower = lower + (tl.load(own + at, mask=at < count, other=0),)
        upper = upper + (tl.load(own + at + 1, mask=at + 1 < count, other=0),)
    left = tl.minimum(count - first, 2 * LANES)
    while left > 1:
        flags = _PARENT + tl.where((count <= 2 * LANES) & (left == 2), _ROOT, 0)
        joined = _compressed(_first(lower[0]), lower + upper, 0, 64, flags.to(tl.uint32))
        h = _chosen(2 * lane + 1 < left, joined, lower)
        lower, upper = (), ()
        for word in tl.static_range(_STATE):
            lower = lower + (tl.gather(h[word], 2 * lane % LANES, 0),)
            upper = upper + (tl.gather(h[word], (2 * lane + 1) % LANES, 0),)
        left = (left + 1) // 2
    for word in tl.static_range(_STATE):
        place = (row * _STATE + word) * tl.num_programs(0) + program
        tl.store(out + place + lane, lower[word], mask=lane == 0)


def hash_rows(rows: Tensor, length: int) -> Tensor:
    """Compute the digests of rows on a card; see ``row_digests``."""
    chunks = triton.cdiv(length, _CHUNK.value)
    nodes = rows.new_empty(len(rows), _STATE.value, chunks, dtype=torch.uint32)
    hash_chunks[(triton.cdiv(len(rows) * chunks, CHUNKS),)](
        rows.view(torch.uint32), *rows.stride(), length, len(rows), chunks, nodes, LANES=CHUNKS
    )
    while chunks > 1:
        chunks = triton.cdiv(chunks, 2 * PAIRS)
        joined = nodes.new_empty(len(rows), _STATE.value, chunks)
        join_nodes[(chunks, len(rows))](nodes, nodes.shape[2], joined, LANES=PAIRS)
        nodes = joined
    return nodes[:, : DIGEST_BYTES // 4, 0].view(torch.uint8)
