"""The device of this process. Nothing outside `hardware/` names a kind of device."""

from __future__ import annotations

import torch


def pick() -> torch.device:
    """The accelerator if there is one, else the CPU."""
    kind = torch.accelerator.current_accelerator(check_available=True)
    return torch.device("cpu") if kind is None else torch.device(kind.type, torch.accelerator.current_device_index())
