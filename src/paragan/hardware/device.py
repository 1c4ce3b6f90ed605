"""The device of this process. Nothing outside `hardware/` names a kind of device."""

from __future__ import annotations

import torch


def pick() -> torch.device:
    """The accelerator if there is one, else the CPU."""
    if torch.accelerator.is_available():
        return torch.device(torch.accelerator.current_accelerator(), torch.accelerator.current_device_index())  # type: ignore[arg-type]
    return torch.device("cpu")
