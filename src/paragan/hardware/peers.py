"""Direct transfers between the memories of two accelerators (NCCL)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from paragan.core.process_environment import temporary_variables

_OURS = {
    # Without torch's watchdog thread, which would end the process on a failure or time-out.
    "TORCH_NCCL_BLOCKING_WAIT": "1",
    # A pair exchanges one message at a time, so serialisation costs nothing.
    "TORCH_NCCL_SHOW_EAGER_INIT_P2P_SERIALIZATION_WARNING": "0",
}


def num_nccl_devices() -> int:
    """Return the number of accelerators of this host that NCCL supports."""
    return torch.cuda.device_count() if dist.is_nccl_available() else 0


def accelerator_uuid(device: torch.device) -> str | None:
    """Return the UUID of the accelerator; None if NCCL does not support it."""
    if device.type != "cuda" or not dist.is_nccl_available():
        return None
    return str(torch.cuda.get_device_properties(device).uuid)


def connect_nccl_pair(store: dist.Store, rank: int, device: torch.device, timeout_s: float) -> Any:
    """Create an NCCL group of two processes, ranks 0 and 1; waits for the other process.

    Its works can be polled, which raises their errors. Messages match by the order of calls; tags
    are ignored. store: used by this pair only. Raises `RuntimeError` if they cannot connect, such
    as two processes on one accelerator.
    """
    options = dist.ProcessGroupNCCL.Options()
    options._timeout = timedelta(seconds=timeout_s)
    with temporary_variables(_OURS):  # read when a group is made
        group = dist.ProcessGroupNCCL(store, rank, 2, options)
    group.eager_connect_single_device(device)
    return group
