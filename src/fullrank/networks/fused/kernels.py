"""Choice of the float32 matrix kernel, with a check that it really computes in float32.

On processors where MKL does not use AVX-512, letting PyTorch send float32 products to oneDNN
(``set_float32_matmul_precision("medium")``) doubles their speed. Where oneDNN supports bfloat16
blocks, the same setting silently computes in bfloat16, so the products are probed first. On CUDA
this setting, and one of cuDNN that torch leaves on, would let products round their inputs to TF32:
a block of a kernel switches both off. Only this module touches these process-wide settings, and it
restores the previous values after the last of the blocks that overlap on several threads.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from itertools import combinations
from threading import Lock
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from fullrank.networks.adam import Adam, AdamState
from fullrank.networks.fused.products import batched_product, takes_kernels

ONEDNN_LEAST = 4097
"""Smallest m x n x k of one unit's product for oneDNN. PyTorch uses oneDNN when units x m x n x k
exceeds 4096; the choice must not depend on the number of units computed together, so the product
of a single unit has to exceed that size."""

HALVING = Adam(learning_rate=0.0, target_rate=0.5, decay=0.5, second_decay=0.5)
"""A step that halves moments and targets."""

UNIT_ROUNDOFF = 2.0**-24


@dataclass(frozen=True, slots=True)
class Kernel:
    """Kernels of float32 products: ``default`` (MKL on x86), ``onednn`` or ``triton``."""

    name: Literal["default", "onednn", "triton"]

    @property
    def copies_gaps(self) -> bool:
        """True if every product first copies a matrix whose rows do not lie side by side."""
        return self.name == "onednn"

    @contextmanager
    def selected(self) -> Iterator[None]:
        """Use this kernel within the block, and TF32 in no product.

        Blocks of one kernel may overlap on several threads.
        """
        _SETTING.enter(self)
        try:
            yield
        finally:
            _SETTING.leave()

    @contextmanager
    def active(self) -> Iterator[None]:
        """Select this kernel within the block, without autograd and its bookkeeping.

        Buffers created inside the block may be written only inside it.
        """
        with self.selected(), torch.inference_mode():
            yield

    def shared_product(
        self, weights: Tensor, inputs: Tensor, out: Tensor, *, beta: float = 0.0
    ) -> None:
        """Multiply every unit's matrix by one shared matrix.

        oneDNN computes one wide product far faster than many, and its bits do not depend on the
        width; MKL is as fast for many, and on AVX2 the bits of its wide products depend on the
        width.

        Args:
            weights: Shape (units, outputs, inputs).
            inputs: Shape (inputs, columns).
            out: Contiguous, shape (units, outputs, columns).
            beta: Factor of the previous ``out``, to which the product is added.
        """
        if self.name == "onednn":
            out.flatten(0, 1).addmm_(weights.flatten(0, 1), inputs, beta=beta)
        else:
            batched_product(weights, inputs.expand(len(weights), -1, -1), out, beta=beta)


DEFAULT = Kernel("default")
"""The kernel where no other is chosen: MKL on x86."""

TRITON = Kernel("triton")
"""Kernels of ``fullrank.networks.cards``, of which every sum has one order."""


class _Setting:
    """The process-wide settings while blocks of one kernel are active, on any threads."""

    def __init__(self) -> None:
        self._lock, self._before = Lock(), ("", False, False)
        self._kernels: list[Kernel] = []

    def enter(self, kernel: Kernel) -> None:
        """Set the kernel of a block that begins, without TF32 and with steady convolutions.

        Raises:
            RuntimeError: Blocks of a kernel with other settings are active.
        """
        with self._lock:
            if any((each.name == "onednn") != (kernel.name == "onednn") for each in self._kernels):
                raise RuntimeError(f"kernel {self._kernels[0].name} is active, not {kernel.name}")
            if not self._kernels:
                cudnn = torch.backends.cudnn
                precision = torch.get_float32_matmul_precision()
                self._before = precision, cudnn.allow_tf32, cudnn.deterministic
                precision = "medium" if kernel.name == "onednn" else "highest"
                self._set(precision, allow_tf32=False, deterministic=True)
            self._kernels.append(kernel)

    def leave(self) -> None:
        """Restore the values before the first block at the end of the last one."""
        with self._lock:
            self._kernels.pop()
            if not self._kernels:
                precision, allow_tf32, deterministic = self._before
                self._set(precision, allow_tf32=allow_tf32, deterministic=deterministic)

    def _set(self, precision: str, *, allow_tf32: bool, deterministic: bool) -> None:
        torch.set_float32_matmul_precision(precision)
        torch.backends.cudnn.allow_tf32 = allow_tf32
        torch.backends.cudnn.deterministic = deterministic


_SETTING = _Setting()


def choose(device: torch.device, *, least_product: int) -> Kernel:
    """Return the fastest exact float32 kernel whose bits do not depend on the units in a call.

    Args:
        device: Device of the parameters; CUDA takes those of ``TRITON``.
        least_product: The smallest m x n x k of one unit's products.
    """
    if takes_kernels(device):
        return TRITON
    onednn = Kernel("onednn")
    worthwhile = device.type == "cpu" and least_product >= ONEDNN_LEAST
    fit = worthwhile and _prefers_onednn() and is_float32(onednn) and is_steady(onednn)
    return onednn if fit else DEFAULT


@cache
def is_float32(kernel: Kernel) -> bool:
    """Check products against the float32 bound |fl(AB) - AB| <= K u |A||B| (Higham, ch. 3).

    The bound holds for every order of summation; bfloat16 or TF32 inputs exceed it many times over.
    """
    generator = np.random.Generator(np.random.Philox(key=0))
    a, b = (torch.from_numpy(generator.standard_normal((4, 128, 128))) for _ in range(2))
    a, b = a.float()[:, :, :64].contiguous(), b.float()[:, :64].contiguous()
    bound = 64 * UNIT_ROUNDOFF * torch.bmm(a.double().abs(), b.double().abs())
    exact = torch.bmm(a.double(), b.double())
    with kernel.active():
        products = (torch.bmm(a, b), torch.mm(a[0], b[0]).unsqueeze(0))
    return all(bool(((p - exact[: len(p)]).abs() <= bound[: len(p)]).all()) for p in products)


@cache
def is_steady(kernel: Kernel) -> bool:
    """Check that a unit's bits in ``shared_product`` do not depend on the other units in the call.

    They do depend on them where PyTorch does not use oneDNN after all, as without AVX-512.
    """
    return all(_is_steady(kernel, *shape) for shape in ((50, 73, 176), (64, 256, 74)))


def _is_steady(kernel: Kernel, outputs: int, inputs: int, columns: int) -> bool:
    generator, units = np.random.Generator(np.random.Philox(key=0)), 6
    shapes = ((units, outputs, inputs), (inputs, columns))
    weights, shared = (
        torch.from_numpy(generator.standard_normal(shape)).float() for shape in shapes
    )

    def steady(right: Tensor) -> bool:
        def product(first: int, last: int) -> Tensor:
            out = torch.zeros(last - first, outputs, columns)
            kernel.shared_product(weights[first:last], right, out)
            return out

        together = product(0, units)
        companies = combinations(range(units + 1), 2)
        return all(torch.equal(product(*span), together[slice(*span)]) for span in companies)

    with kernel.active():  # gradients read rows, first layers their transpose
        return steady(shared) and steady(shared.t().contiguous().t())


@cache
def _prefers_onednn() -> bool:
    """Return True on AMD processors: MKL runs its AVX-512 kernels on Intel processors only."""
    return "AuthenticAMD" in processor()


@cache
def processor() -> str:
    """Return the processor's vendor and model name, if the system reports them."""
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as lines:
            wanted = ("vendor_id", "model name")
            names = {line.split(":")[-1].strip() for line in lines if line.startswith(wanted)}
            return " ".join(sorted(names))
    except OSError:
        return "unknown processor"


def fingerprint(kernel: Kernel, device: torch.device) -> str:
    """Return all facts on which the bits of an update may depend, and a digest of some products.

    Operations that flush denormal numbers to zero, in the calling thread, are named at its end; no
    text of a process without any names them.
    """
    where = torch.cuda.get_device_name(device) if device.type == "cuda" else processor()
    parts = {
        "torch": torch.__version__,
        "device": f"{device.type} ({where})",
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "kernel": kernel.name if kernel != TRITON else f"triton {version('triton')}",
        "threads": torch.get_num_threads(),
        "probe": _probe(kernel, device),
    }
    if device.type == "cuda":
        parts["noise"] = f"triton {version('triton')}"
    if flushed := flushing(kernel, device):
        parts["denormals"] = f"flushed by {', '.join(flushed)}"
    return "; ".join(f"{name} {value}" for name, value in parts.items())


@cache
def _probe(kernel: Kernel, device: torch.device) -> str:
    """Hash products and transcendental functions of fixed inputs."""
    generator = np.random.Generator(np.random.Philox(key=1))
    digest = hashlib.blake2b(digest_size=6)
    with kernel.active():
        for shape in ((2, 64, 425), (2, 50, 51), (2, 256, 1025)):
            a = torch.from_numpy(generator.standard_normal(shape, dtype=np.float32)).to(device)
            product = torch.bmm(a, a.transpose(1, 2))
            for result in (product, product.tanh(), product.abs().log()):
                digest.update(result.cpu().numpy().tobytes())
    return digest.hexdigest()


def flushing(kernel: Kernel, device: torch.device) -> list[str]:
    """Name the operations of an update that take or make a denormal number for zero.

    Libraries that were compiled with ``-ffast-math`` set the processor so for the thread that loads
    them, and all that it starts. All results are exact powers of two.
    """

    def full(exponent: int, *shape: int) -> Tensor:
        return torch.full(shape, 2.0**exponent, device=device)

    with kernel.active():
        nothing = torch.zeros(1, 16, device=device)
        state = AdamState(nothing, full(-140, 1, 16), full(-127, 1, 16), full(-140, 1, 16))
        state.step(nothing, HALVING, count=1)
        found = {
            "element-wise products": [
                (full(-130, 16) * 2.0**20, -110),
                (full(-100, 16) * 2.0**-40, -140),
            ],
            "matrix products": [
                (torch.bmm(full(left, 2, 32, 16), full(right, 2, 16, 32)), left + right + 4)
                for left, right in ((-130, 20), (-70, -70))
            ],
            "moments": [(state.moment, -128), (state.second_moment, -141)],
            "targets": [(state.target, -141)],
        }
    return [
        name
        for name, results in found.items()
        if not all(_is_power(result, exponent) for result, exponent in results)
    ]


def _is_power(values: Tensor, exponent: int) -> bool:
    """Compare bits, because a comparison of numbers may take denormal ones for zero, too."""
    shift = exponent + 149
    bits = 1 << shift if shift < 23 else (exponent + 127) << 23
    return bool((values.cpu().contiguous().view(torch.int32) == bits).all())
