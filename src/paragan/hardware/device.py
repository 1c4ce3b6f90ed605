"""The device of this process. Nothing outside `hardware/` names a kind of device."""

from __future__ import annotations

import torch


def pick(threads: int | None = None) -> torch.device:
    """The accelerator if there is one, else the CPU, which this process from now on uses with so many threads."""
    if threads is not None:
        torch.set_num_threads(threads)
    kind = torch.accelerator.current_accelerator(check_available=True)
    return torch.device("cpu") if kind is None else torch.device(kind.type, torch.accelerator.current_device_index())
