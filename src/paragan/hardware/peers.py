"""Direct transfers between the memories of two accelerators (NCCL)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

_OURS = {
    # No thread of torch's watches the group: on a failure, or a time-out of its own, it would end the whole process.
    "TORCH_NCCL_BLOCKING_WAIT": "1",
    # Two processes have one thing to say at a time: it may as well go one after another.
    "TORCH_NCCL_SHOW_EAGER_INIT_P2P_SERIALIZATION_WARNING": "0",
}


def num_nccl_devices() -> int:
    """Number of accelerators of this host that NCCL supports."""
    return torch.cuda.device_count() if dist.is_nccl_available() else 0


def accelerator_uuid(device: torch.device) -> str | None:
    """UUID of the accelerator, independent of its index; None where NCCL does not support it."""
    if device.type != "cuda" or not dist.is_nccl_available():
        return None
    return str(torch.cuda.get_device_properties(device).uuid)


def connect_pair(store: dist.Store, rank: int, device: torch.device, timeout_s: float) -> Any:
    """The group of two processes (NCCL's), ranks 0 and 1; returns when the other one has come, too.

    Its works can be polled, and polling raises their errors. It matches by the order of calls and
    ignores tags. store: of these two alone. `RuntimeError` where they cannot meet, as two on one
    accelerator.
    """
    options = dist.ProcessGroupNCCL.Options()
    options._timeout = timedelta(seconds=timeout_s)
    with _environment(_OURS):  # read when a group is made
        group = dist.ProcessGroupNCCL(store, rank, 2, options)
    group.eager_connect_single_device(device)
    return group


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
