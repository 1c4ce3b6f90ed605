"""The device of this process. Nothing outside `hardware/` names a kind of device."""

from __future__ import annotations

import torch

from paragan.core.errors import ConfigError


def select_device(threads: int | None = None, local_rank: int | None = None, local_size: int = 1) -> torch.device:
    """The accelerator if there is one, else the CPU, which this process from now on uses with so many threads.

    local_rank: which of this host's `local_size` processes asks; each gets an accelerator of its own, and where there
    are too few a `ConfigError`. Processes on the CPU may be more than its cores.
    """
    if threads is not None:
        torch.set_num_threads(threads)
    kind = torch.accelerator.current_accelerator(check_available=True)
    if kind is None:
        return torch.device("cpu")
    if local_rank is None:
        return torch.device(kind.type, torch.accelerator.current_device_index())
    if local_size > num_accelerators():
        raise ConfigError(
            f"devices: found {num_accelerators()} {kind.type} on this host, fewer devices than asked: {local_size}; "
            f"give devices={num_accelerators()}, or hide them to train on the CPU"
        )
    torch.accelerator.set_device_index(local_rank)
    return torch.device(kind.type, local_rank)


def device_from_option(name: str, threads: int | None = None) -> torch.device:
    """auto: as `pick` does for a process alone. cpu: that. A number: the accelerator of this number, counted round and
    round where there are fewer; without any, the CPU. `ConfigError` for anything else.
    """
    if not (name in ("auto", "cpu") or name.isdecimal()):
        raise ConfigError(f"device: found {name!r}, expected auto, cpu or a number")
    if name == "auto" or (name != "cpu" and num_accelerators() == 0):
        return select_device(threads)
    if name == "cpu":
        if threads is not None:
            torch.set_num_threads(threads)
        return torch.device("cpu")
    return select_device(threads, int(name) % num_accelerators(), num_accelerators())


def device_by_name(name: str | torch.device) -> torch.device:
    """auto: as `pick` does for a process alone. Anything else: a device by torch's name, `ConfigError` if unusable."""
    if name == "auto":
        return select_device()
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, TypeError, NotImplementedError) as error:
        reason = " ".join(str(error).split())[:100]
        raise ConfigError(f"device {str(name)!r} cannot be used ({reason}); use auto or cpu") from None
    return device


def num_accelerators() -> int:
    """Accelerators of this host; 0 where it trains on the CPU."""
    return torch.accelerator.device_count() if torch.accelerator.is_available() else 0


class SideStream:
    """`with` it a thread's work goes beside that of others, as on the CPU it always does; at the end it is done.

    What was given to the device before this was made is done by then; of later work nobody waits for anybody.
    """

    def __init__(self, device: torch.device) -> None:
        self._stream = None if device.type == "cpu" else torch.Stream(device)
        if self._stream is not None:
            self._stream.wait_stream(torch.accelerator.current_stream(device))

    def __enter__(self) -> None:
        if self._stream is not None:
            self._stream.__enter__()

    def __exit__(self, *raised: object) -> None:
        if self._stream is not None:
            self._stream.synchronize()
            self._stream.__exit__(*raised)  # type: ignore[arg-type]
