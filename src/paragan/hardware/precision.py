"""Which number format and memory layout a network runs in."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import torch
from torch import nn

from paragan.core.errors import ConfigError

DTYPES = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16, "pure": torch.bfloat16}


def dtype_of(name: str, net: nn.Module, device: torch.device) -> torch.dtype | None:
    """The autocast format for `auto`, `fp32`, `bf16`, `fp16` or `pure` (bf16 with bf16 weights); None: no autocast.

    `auto` is bf16 where the hardware multiplies it natively and the network is convolutional: small
    dense networks spend their time elsewhere and lose by the casts (benchmarks/). fp16 on a CPU is
    refused: it runs 20 times slower.
    """
    if name == "fp16" and device.type == "cpu":
        raise ConfigError(
            "precision fp16 is not supported on a CPU, where it is about 20 times slower than "
            "fp32; use bf16, fp32 or auto"
        )
    if name == "auto":
        name = "bf16" if has_bf16(device) and _is_convolutional(net) else "fp32"
    return DTYPES[name]


def wants_channels_last(choice: bool | None, net: nn.Module) -> bool:
    """The layout.

    As chosen, or channels last for convolutional networks (measured faster on CPUs and on tensor
    cores).
    """
    return _is_convolutional(net) if choice is None else choice


def precision_candidates(choice: str, device: torch.device) -> tuple[str, ...]:
    """What `auto` may turn out to be, the likeliest first; fp16 never: it needs a loss scale, and is no faster."""
    if choice != "auto":
        return (choice,)
    return ("bf16", "fp32") if has_bf16(device) else ("fp32",)


def layout_candidates(choice: bool | None, net: nn.Module) -> tuple[bool, ...]:
    """The same of channels last, which dense networks have no use for."""
    if choice is not None:
        return (choice,)
    return (True, False) if _is_convolutional(net) else (False,)


def has_bf16(device: torch.device) -> bool:
    """Whether this device multiplies bfloat16 faster than float32."""
    if device.type == "cpu":
        return _has_fast_bf16(_cpuinfo())
    return device.type != "cuda" or torch.cuda.is_bf16_supported(including_emulation=False)


def _has_fast_bf16(cpuinfo: str) -> bool:
    """By the flags, not by a timing: the same machine must choose the same way twice.

    avx512_bf16 alone is not enough: on Intel's server cores it runs at half rate (0.6 x fp32 where
    AMX is hidden by a hypervisor, docs/journal.md), on AMD's at twice the rate of fp32.
    """
    return "amx_bf16" in cpuinfo or ("avx512_bf16" in cpuinfo and "AuthenticAMD" in cpuinfo)


@cache
def _cpuinfo() -> str:
    path = Path("/proc/cpuinfo")  # torch has no public question for it
    return path.read_text(errors="replace") if path.exists() else ""


def _is_convolutional(net: nn.Module) -> bool:
    return any(isinstance(m, (nn.Conv2d, nn.ConvTranspose2d)) for m in net.modules())
