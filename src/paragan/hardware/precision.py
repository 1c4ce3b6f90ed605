"""Number format and memory layout of a network."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import torch
from torch import nn

from paragan.core.errors import ConfigError
from paragan.core.types import Side

DTYPES = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16, "pure": torch.bfloat16}


def dtype_of(name: str, net: nn.Module, device: torch.device, side: Side) -> torch.dtype | None:
    """Return the autocast format for `auto`, `fp32`, `bf16`, `fp16` or `pure`; None: no autocast.

    `pure` is bf16 with bf16 weights. `auto` is bf16 for D if the hardware multiplies it natively and the
    network is convolutional; small dense networks are slower with the casts (benchmarks/). Other players
    compute in float32: bf16 in G ended the game of small GANs at 64 px on images with a white background
    (docs/how-to/troubleshooting.md), and no choice by speed may do that. Raises `ConfigError` for fp16 on a CPU.
    """
    if name == "fp16" and device.type == "cpu":
        raise ConfigError("precision fp16 is 20 times slower than fp32 on a CPU; use bf16, fp32 or auto")
    if name == "auto":
        is_fast = has_bf16(device) and _is_convolutional(net)
        name = "bf16" if side is Side.D and is_fast else "fp32"
    return DTYPES[name]


def wants_channels_last(choice: bool | None, net: nn.Module) -> bool:
    """Return whether to use channels last: as chosen, by default for convolutional networks."""
    return layout_candidates(choice, net)[0]


@contextmanager
def full_precision(device: torch.device) -> Iterator[None]:
    """Compute float32 convolutions without TF32 rounding on this device, for comparable numbers."""
    if device.type == "cpu":
        yield
        return
    now = torch.backends.cudnn
    with now.flags(enabled=now.enabled, benchmark=now.benchmark, deterministic=now.deterministic, allow_tf32=False):
        yield


def layout_candidates(choice: bool | None, net: nn.Module) -> tuple[bool, ...]:
    """Return the values of channels last that `auto` chooses from; dense networks have one."""
    if choice is not None:
        return (choice,)
    return (True, False) if _is_convolutional(net) else (False,)


def channel_multiple(device: torch.device) -> int:
    """Return the multiple of channels that may suit a device: on a CPU the numbers of a register."""
    is_wide = device.type == "cpu" and "AVX512" in torch.backends.cpu.get_cpu_capability()
    return 16 if is_wide else 8


def has_bf16(device: torch.device) -> bool:
    """Whether this device multiplies bfloat16 faster than float32."""
    if device.type == "cpu":
        return _has_fast_bf16(_cpuinfo())
    return device.type != "cuda" or torch.cuda.is_bf16_supported(including_emulation=False)


def _has_fast_bf16(cpuinfo: str) -> bool:
    """Decide by CPU flags instead of a timing, so that a machine always decides equally.

    avx512_bf16 alone is not enough: on Intel's server cores it runs at half rate (0.6 x fp32 where
    AMX is hidden by a hypervisor, docs/internals/journal.md), on AMD's at twice the rate of fp32.
    """
    return "amx_bf16" in cpuinfo or ("avx512_bf16" in cpuinfo and "AuthenticAMD" in cpuinfo)


@cache
def _cpuinfo() -> str:
    path = Path("/proc/cpuinfo")  # torch has no public function for it
    return path.read_text(errors="replace") if path.exists() else ""


def _is_convolutional(net: nn.Module) -> bool:
    return any(isinstance(m, (nn.Conv2d, nn.ConvTranspose2d)) for m in net.modules())
