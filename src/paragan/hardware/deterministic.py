"""Deterministic kernels; without them, equal runs on an accelerator differ in their last bits."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from paragan.core.errors import ConfigError

_MISSING = " does not have a deterministic implementation"  # in the message of torch


@contextmanager
def deterministic_kernels(enabled: bool) -> Iterator[None]:
    """Let torch use deterministic kernels in the block, if enabled (`train.deterministic`).

    Not enabled, nothing changes: the caller's code may have set them itself.

    cuBLAS reads its environment variable at its first product, which must not be before the block.
    Raises `ConfigError` as `report_missing_kernels`.
    """
    if not enabled:
        yield
        return
    before = torch.get_deterministic_debug_mode()
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    try:
        with report_missing_kernels():
            yield
    finally:
        torch.set_deterministic_debug_mode(before)


@contextmanager
def report_missing_kernels() -> Iterator[None]:
    """Turn torch's error for an operation without a deterministic kernel into a `ConfigError`.

    Also around runs in which the user's code requests deterministic kernels, without the setting.
    """
    try:
        yield
    except RuntimeError as error:
        operation, separator, _ = str(error).partition(_MISSING)
        if not separator:
            raise
        raise ConfigError(
            f"torch has no deterministic kernel for {operation} on this device; set train.deterministic=false, "
            "do not call torch.use_deterministic_algorithms, or replace the layer that needs it"
        ) from error
