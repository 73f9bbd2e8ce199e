"""Which float32 matrix kernel this process uses, and proof that it really computes in float32.

On processors where MKL does not use AVX-512, letting PyTorch send float32 products to oneDNN
(``set_float32_matmul_precision("medium")``) doubles their speed. Where oneDNN owns bfloat16 blocks
the same line silently computes in bfloat16, so the products are probed first. This module is the
only place that touches that process-wide setting, and it leaves it as it was.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from typing import Literal

import numpy as np
import torch
from torch import Tensor

ONEDNN_LEAST = 4097
"""PyTorch sends a product to oneDNN when units x m x n x k is above 4096. The choice must not
depend on how many units are computed together, so one unit's product has to be so large alone."""

UNIT_ROUNDOFF = 2.0**-24


@dataclass(frozen=True, slots=True)
class Kernel:
    """A float32 matrix kernel: ``default`` (MKL on x86) or ``onednn``."""

    name: Literal["default", "onednn"]

    @contextmanager
    def active(self) -> Iterator[None]:
        """Use this kernel within the block, without autograd and its bookkeeping.

        Buffers made inside may be written inside only.
        """
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("highest" if self.name == "default" else "medium")
        try:
            with torch.inference_mode():
                yield
        finally:
            torch.set_float32_matmul_precision(before)

    def shared_product(
        self, weights: Tensor, inputs: Tensor, out: Tensor, *, beta: float = 0.0
    ) -> None:
        """Multiply every unit's matrix by the one matrix that all share.

        oneDNN is far better at one wide product than at many, and its bits do not depend on the
        width; MKL is as good at many, and on AVX2 the bits of its wide products do depend on it.

        Args:
            weights: Shape (units, outputs, inputs).
            inputs: Shape (inputs, columns).
            out: Contiguous, shape (units, outputs, columns).
            beta: The product is added to so much of ``out``.
        """
        if self.name == "onednn":
            out.flatten(0, 1).addmm_(weights.flatten(0, 1), inputs, beta=beta)
        else:
            out.baddbmm_(weights, inputs.expand(len(weights), -1, -1), beta=beta)


def choose(device: torch.device, *, least_product: int) -> Kernel:
    """The fastest kernel that is exact float32 and does not mind how many units share a call.

    Args:
        device: Only the CPU has a choice.
        least_product: The smallest m x n x k of one unit's products.
    """
    onednn = Kernel("onednn")
    worthwhile = device.type == "cpu" and least_product >= ONEDNN_LEAST
    fit = worthwhile and _prefers_onednn() and is_float32(onednn) and is_steady(onednn)
    return onednn if fit else Kernel("default")


@cache
def is_float32(kernel: Kernel) -> bool:
    """Whether products stay within the float32 bound |fl(AB) - AB| <= K u |A||B| (Higham, ch. 3).

    The bound holds for every order of summation; bfloat16 or TF32 inputs exceed it many times.
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
    """Whether the bits of a unit in ``shared_product`` are the same in any company.

    Where PyTorch does not give its products to oneDNN after all, as without AVX-512, they are not.
    """
    return all(_is_steady(kernel, *shape) for shape in ((50, 73, 176), (64, 256, 74)))


def _is_steady(kernel: Kernel, outputs: int, inputs: int, columns: int) -> bool:
    generator, units = np.random.Generator(np.random.Philox(key=0)), 6
    shapes = ((units, outputs, inputs), (inputs, columns))
    weights, shared = (
        torch.from_numpy(generator.standard_normal(shape)).float() for shape in shapes
    )

    def product(first: int, last: int) -> Tensor:
        out = torch.zeros(last - first, outputs, columns)
        kernel.shared_product(weights[first:last], shared, out)
        return out

    with kernel.active():
        together = product(0, units)
        companies = combinations(range(units + 1), 2)
        return all(torch.equal(product(*each), together[slice(*each)]) for each in companies)


@cache
def _prefers_onednn() -> bool:
    """MKL runs its AVX-512 kernels on Intel processors only."""
    return "AuthenticAMD" in processor()


@cache
def processor() -> str:
    """Its maker and what the maker calls it, where the system tells."""
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as lines:
            wanted = ("vendor_id", "model name")
            found = {line.split(":")[-1].strip() for line in lines if line.startswith(wanted)}
            return " ".join(sorted(found))
    except OSError:
        return "unknown processor"


def fingerprint(kernel: Kernel, device: torch.device) -> str:
    """Everything that the bits of a product may depend on, and a digest of some products."""
    where = torch.cuda.get_device_name(device) if device.type == "cuda" else processor()
    parts = {
        "torch": torch.__version__,
        "device": f"{device.type} ({where})",
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "kernel": kernel.name,
        "threads": torch.get_num_threads(),
        "probe": _probe(kernel, device),
    }
    return "; ".join(f"{name} {value}" for name, value in parts.items())


def _probe(kernel: Kernel, device: torch.device) -> str:
    """Digest of products and transcendental functions of fixed inputs."""
    generator = np.random.Generator(np.random.Philox(key=1))
    digest = hashlib.blake2b(digest_size=6)
    with kernel.active():
        for shape in ((2, 64, 425), (2, 50, 51), (2, 256, 1025)):
            a = torch.from_numpy(generator.standard_normal(shape, dtype=np.float32)).to(device)
            product = torch.bmm(a, a.transpose(1, 2))
            for result in (product, product.tanh(), product.abs().log()):
                digest.update(result.cpu().numpy().tobytes())
    return digest.hexdigest()
