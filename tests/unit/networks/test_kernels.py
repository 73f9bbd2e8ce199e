"""The kernel in use is real float32, and choosing one leaves no trace."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from fullrank.networks.fused import kernels
from fullrank.networks.fused.kernels import Kernel

CPU = torch.device("cpu")


def test_a_kernel_that_rounds_its_inputs_to_bfloat16_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = torch.bmm

    def coarse(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        if a.dtype == torch.float64:
            return real(a, b)
        return real(a.bfloat16().float(), b.bfloat16().float())

    monkeypatch.setattr(torch, "bmm", coarse)
    assert not kernels.is_float32.__wrapped__(Kernel("onednn"))


def test_the_chosen_kernel_is_float32_on_this_machine() -> None:
    assert kernels.is_float32(kernels.choose(CPU, least_product=2**20))


def test_small_products_stay_on_the_default_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_prefers_onednn", lambda: True)
    monkeypatch.setattr(kernels, "is_float32", lambda kernel: True)
    monkeypatch.setattr(kernels, "is_steady", lambda kernel: True)
    least = kernels.ONEDNN_LEAST
    assert kernels.choose(CPU, least_product=least - 1) == Kernel("default")
    assert kernels.choose(CPU, least_product=least) == Kernel("onednn")


@pytest.mark.parametrize("name", ["default", "onednn"])
def test_a_kernel_allows_no_tf32_and_restores_the_process_wide_settings(name: str) -> None:
    def settings() -> tuple[str, bool]:
        return torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32

    before, kernel = settings(), Kernel(name)  # type: ignore[arg-type]
    with kernel.active():
        assert settings() == ({"default": "highest", "onednn": "medium"}[name], False)
    assert settings() == before
    with pytest.raises(RuntimeError, match="inside"), kernel.active():
        raise RuntimeError("inside")
    assert settings() == before


def test_overlapping_blocks_keep_their_kernel_until_the_last_has_ended() -> None:
    before = torch.get_float32_matmul_precision()
    first, second = (Kernel("onednn").active() for _ in range(2))
    with ThreadPoolExecutor(1) as thread, ThreadPoolExecutor(1) as other:
        thread.submit(first.__enter__).result()
        other.submit(second.__enter__).result()
        thread.submit(first.__exit__, None, None, None).result()
        assert torch.get_float32_matmul_precision() == "medium"
        with pytest.raises(RuntimeError, match="onednn is active"), Kernel("default").active():
            pass
        other.submit(second.__exit__, None, None, None).result()
    assert torch.get_float32_matmul_precision() == before
    assert not torch.is_inference_mode_enabled()


def test_a_kernel_that_is_not_float32_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_prefers_onednn", lambda: True)
    monkeypatch.setattr(kernels, "is_float32", lambda kernel: False)
    assert kernels.choose(CPU, least_product=2**20) == Kernel("default")


def test_the_kernel_of_this_machine_is_steady() -> None:
    assert kernels.is_steady(kernels.choose(CPU, least_product=2**20))


def test_a_kernel_whose_bits_depend_on_the_company_is_not_chosen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = Kernel.shared_product

    def depends_on_company(
        self: Kernel, weights: torch.Tensor, inputs: torch.Tensor, out: torch.Tensor
    ) -> None:
        real(self, weights, inputs, out)
        out += 1e-5 * (len(weights) == 5)

    monkeypatch.setattr(Kernel, "shared_product", depends_on_company)
    monkeypatch.setattr(kernels, "_prefers_onednn", lambda: True)
    monkeypatch.setattr(kernels, "is_float32", lambda kernel: True)
    monkeypatch.setattr(kernels, "is_steady", kernels.is_steady.__wrapped__)
    assert kernels.choose(CPU, least_product=2**20) == Kernel("default")


def test_a_fingerprint_of_cuda_names_what_draws_its_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "card")
    monkeypatch.setattr(kernels, "version", lambda name: f"version of {name}")
    monkeypatch.setattr(kernels, "_probe", lambda kernel, device: "0")
    monkeypatch.setattr(kernels, "flushing", lambda kernel, device: [])
    text = kernels.fingerprint(Kernel("default"), torch.device("cuda"))
    assert text.endswith("; probe 0; noise triton version of triton")
    assert "noise" not in kernels.fingerprint(Kernel("default"), CPU)


@pytest.mark.parametrize("name", ["default", "onednn"])
def test_a_thread_that_flushes_denormal_numbers_has_another_fingerprint(name: str) -> None:
    kernel = Kernel(name)  # type: ignore[arg-type]

    def flushing() -> str:
        assert torch.set_flush_denormal(True)
        return kernels.fingerprint(kernel, CPU)

    kept = kernels.fingerprint(kernel, CPU)
    text, _, own = kept.partition("; denormals flushed by ")
    # A run of an earlier version has a text without them; products of oneDNN flush by themselves
    # on some processors.
    assert own in (("",) if name == "default" else ("", "matrix products"))
    with ThreadPoolExecutor(1) as thread:  # the setting is one of threads
        flushed = thread.submit(flushing).result()
    operations = "element-wise products, matrix products, moments, targets"
    assert flushed == f"{text}; denormals flushed by {operations}"
    assert kernels.fingerprint(kernel, CPU) == kept
