"""Device selection; no module outside `hardware/` names a kind of device."""

import platform
from collections.abc import Iterable
from pathlib import Path

import torch

from paragan.core.errors import ConfigError
from paragan.core.process_environment import host_memory_bytes


def select_device(threads: int | None = None, local_rank: int | None = None, local_size: int = 1) -> torch.device:
    """Select the accelerator, or the CPU without one, and set the number of CPU threads.

    local_rank: of this process among the `local_size` processes of this host, each of which gets a separate
    accelerator; raises `ConfigError` if they are too few. On the CPU, more processes than cores are allowed.
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
            f"devices: {local_size} requested, but this host has {num_accelerators()} {kind.type} "
            f"devices; set devices={num_accelerators()}, or hide them to train on the CPU"
        )
    torch.accelerator.set_device_index(local_rank)
    return torch.device(kind.type, local_rank)


def device_from_option(name: str) -> torch.device:
    """Select a device by a worker's `--device` option: auto, cpu or the index of an accelerator.

    An index is taken modulo the number of accelerators; without any, it is the CPU. Raises
    `ConfigError` for anything else.
    """
    if not (name in ("auto", "cpu") or name.isdecimal()):
        raise ConfigError(f"device must be auto, cpu or a number, not {name!r}")
    if name == "cpu" or num_accelerators() == 0:
        return torch.device("cpu")
    if name == "auto":
        return select_device()
    # as the process of that number among as many as there are accelerators
    return select_device(local_rank=int(name) % num_accelerators(), local_size=num_accelerators())


def device_by_name(name: str | torch.device) -> torch.device:
    """Return a device by torch's name; `auto` selects the accelerator or the CPU.

    Raises `ConfigError` if the device is unusable.
    """
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
    """Return the number of accelerators of this host; 0 if it trains on the CPU."""
    return torch.accelerator.device_count() if torch.accelerator.is_available() else 0


def memory_per_process(device: torch.device, num_processes: int) -> int | None:
    """Return the bytes of memory for each of so many processes of this host; None: not known.

    Each has an accelerator, or all share the memory of the host.
    """
    if device.type == "cpu":
        return host_memory_bytes() // num_processes
    try:
        _, total_bytes = torch.accelerator.get_memory_info(device)  # free, total
    except RuntimeError:  # a device without this information
        return None
    return total_bytes


def mark_ready(device: torch.device) -> torch.Event | None:
    """Return the end of the work queued on the current stream of a device; None on the CPU."""
    if device.type == "cpu":
        return None
    return torch.accelerator.current_stream(device).record_event()


def wait_until_ready(ready: torch.Event | None, tensors: Iterable[torch.Tensor]) -> None:
    """Let later work on the current stream start after `ready`, without waiting on the host.

    tensors: of another stream, whose memory is not reused before that work has read them.
    """
    if ready is None:
        return
    for tensor in tensors:
        if tensor.device.type == "cpu":
            continue
        stream = torch.accelerator.current_stream(tensor.device)
        stream.wait_event(ready)
        tensor.record_stream(stream)


class SideStream:
    """Context that runs a thread's work on a separate stream and synchronises at its end.

    Work queued before the construction finishes first; later work is independent. No effect on the CPU. A step of the
    thread, on tensors that the other one has loaded:

        loaded = mark_ready(device)  # in the thread that has queued the loading
        with stream:                 # in the thread of the side stream
            stream.wait(loaded)
            ...                      # work; finished when the block ends
    """

    def __init__(self, device: torch.device) -> None:
        self._stream = None if device.type == "cpu" else torch.Stream(device)
        if self._stream is not None:
            self._stream.wait_stream(torch.accelerator.current_stream(device))

    def wait(self, ready: torch.Event | None) -> None:
        """Let later work on this stream start after what `mark_ready` returned."""
        if self._stream is not None and ready is not None:
            self._stream.wait_event(ready)

    def __enter__(self) -> None:
        if self._stream is not None:
            self._stream.__enter__()

    def __exit__(self, *raised: object) -> None:
        if self._stream is not None:
            self._stream.synchronize()
            self._stream.__exit__(*raised)  # type: ignore[arg-type]


def machine(device: torch.device) -> str:
    """Return the kind of machine: the name of the accelerator, or of the processor."""
    if device.type != "cpu":
        return str(torch.get_device_module(device).get_device_name(device))
    path = Path("/proc/cpuinfo")
    lines = path.read_text(errors="replace").splitlines() if path.exists() else []
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return model or platform.processor() or platform.machine()
