"""Checks of the installation: versions, build of torch, processor and accelerators.

Metadata is read; a package that may be broken (torchvision) is imported in a separate process.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import paragan
from paragan.hardware.health import CheckResult

NEEDED = {  # as in pyproject.toml
    **{"torch": "2.11", "numpy": "1.26", "pillow": "10.3", "pydantic": "2.7"},
    **{"annotated-types": "0.6", "pyyaml": "6.0.1", "typer": "0.29"},
    **{"jinja2": "3.1.4", "safetensors": "0.4.5"},
}
Versions = Mapping[str, str]
_NVIDIA_DRIVER = "/proc/driver/nvidia/version"


def versions() -> dict[str, str]:
    """Return the version of every installed distribution by its lower-case name."""
    found = importlib.metadata.distributions()
    return {name.lower(): d.version for d in found if (name := d.metadata["Name"])}


def python() -> CheckResult:
    """Report the versions of paragan, Python and the system."""
    system = f"{platform.system()} {platform.release()} {platform.machine()}"
    python = platform.python_version()
    return CheckResult("paragan", "ok", f"{paragan.__version__}, Python {python}, {system}")


def packages(installed: Callable[[], Versions] = versions) -> CheckResult:
    """Check the required packages and their minimum versions."""
    there = installed()
    wrong = [f"{k}>={least}" for k, least in NEEDED.items() if _number(there.get(k, "")) < _number(least)]
    found = ", ".join(f"{name} {there.get(name, 'missing')}" for name in NEEDED)
    names = " ".join(repr(w) for w in wrong)
    cure = f"install what is missing or too old: pip install {names}" if wrong else ""
    return CheckResult("packages", "FAIL" if wrong else "ok", found, cure)


def torchvision(
    installed: Callable[[], Versions] = versions,
    required_torch: Callable[[], str | None] = lambda: torch_required_by_torchvision(),
    imports: Callable[[], str | None] | None = None,
) -> CheckResult:
    """Check that torchvision, if present, matches torch; a mismatch breaks packages that import it.

    required_torch: returns the torch version in its metadata. imports: returns why an import fails,
    None if it works.
    """
    there = installed()
    if "torchvision" not in there:
        return CheckResult("torchvision", "ok", "absent; paragan does not need it")
    found = f"torchvision {there['torchvision']} next to torch {there.get('torch', 'missing')}"
    required = required_torch()
    is_other = required and _number(required) != _number(there.get("torch", ""))
    reason = f"it requires torch {required}" if is_other else None
    reason = reason or (imports() if imports else None)
    if reason is None:
        return CheckResult("torchvision", "ok", found)
    cure = "it does not match this build of torch; paragan does not need it; remove it with `pip uninstall torchvision`"
    return CheckResult("torchvision", "warn", f"{found}: {reason}", cure)


def torchvision_with_import() -> CheckResult:
    """Check torchvision, with an import in a separate process."""
    return torchvision(imports=torchvision_import_error)


def torch_required_by_torchvision() -> str | None:
    """Return the torch version that torchvision pins; None if it pins none."""
    lines = importlib.metadata.requires("torchvision") or []
    pins = (re.fullmatch(r"torch\s*\(?==\s*([\w.+]+?)\)?", line.split(";")[0].strip()) for line in lines)
    return next((pin[1] for pin in pins if pin), None)


def torchvision_import_error(timeout_s: float = 20.0) -> str | None:
    """Return the last line of the error of an import in a child process; None if it works."""
    try:
        ended = subprocess.run(
            [sys.executable, "-c", "import torchvision"], capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired:
        return f"its import did not end within {timeout_s:g} s"
    if ended.returncode == 0:
        return None
    return (ended.stderr.strip().splitlines() or ["its import fails"])[-1]


def torch_build() -> str:
    """Return the accelerator that torch is built for ("cpu", "cuda 13.0"), without importing it."""
    found = importlib.util.find_spec("torch")
    text = Path(found.origin).with_name("version.py").read_text() if found and found.origin else ""
    kinds = re.findall(r"^(cuda|hip|xpu)\b[^=\n]*=\s*['\"]([^'\"]+)", text, re.M)
    return " ".join(kinds[0]) if kinds else "cpu"


def unused_nvidia_packages(
    installed: Callable[[], Versions] = versions, build: Callable[[], str] = torch_build
) -> CheckResult:
    """Check for `nvidia-*` packages, several GB that a CPU build of torch does not use."""
    there = sorted(name for name in installed() if name.startswith("nvidia-"))
    if there and build() == "cpu":
        named = " ".join(there[:3]) + (" …" if len(there) > 3 else "")
        cure = "torch is a CPU build and does not use them: remove them with `pip uninstall` or install the CUDA build"
        return CheckResult("nvidia packages", "warn", f"{len(there)}: {named}", cure)
    return CheckResult("nvidia packages", "ok", f"{len(there)}, torch is built for {build()}")


def devices(
    build: Callable[[], str] = torch_build,
    seen: Callable[[], list[str]] = lambda: visible_devices(),
    driver: Callable[[], bool] = lambda: os.path.exists(_NVIDIA_DRIVER),
) -> CheckResult:
    """Check the accelerators that torch finds against its build and the driver."""
    try:
        names = seen()
    except (ImportError, OSError, RuntimeError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        cure = "torch does not work here: reinstall it (`pip install --force-reinstall torch`)"
        return CheckResult("devices", "FAIL", reason[:200], cure)
    if names:
        return CheckResult("devices", "ok", ", ".join(names))
    if build() != "cpu":
        cure = "training will use the CPU: check `nvidia-smi`, CUDA_VISIBLE_DEVICES and the driver version"
        return CheckResult("devices", "warn", f"torch is built for {build()} but sees no device", cure)
    if driver():
        cure = "the device stays unused: install a CUDA build of torch (./run: PARAGAN_TORCH=cuda)"
        found = "an NVIDIA driver is installed, but torch is a CPU build"
        return CheckResult("devices", "warn", found, cure)
    return CheckResult("devices", "ok", "none: the CPU is used")


def visible_devices() -> list[str]:
    """Return name and memory of each accelerator; imports torch."""
    import torch

    kind = torch.accelerator.current_accelerator(check_available=True)
    if kind is None:
        return []
    ask = getattr(torch, kind.type)
    if not hasattr(ask, "get_device_properties"):
        return [f"{kind.type} x {torch.accelerator.device_count()}"]
    count = torch.accelerator.device_count()
    known = [ask.get_device_properties(number) for number in range(count)]
    return [f"{device.name} ({device.total_memory / 1e9:.0f} GB)" for device in known]


def processor(threads: int | None = None, usable: int | None = None) -> CheckResult:
    """Check threads and vector units, and report the CPU's `precision: auto`; imports torch."""
    import torch

    from paragan.hardware.precision import has_bf16

    threads = torch.get_num_threads() if threads is None else threads
    usable = _usable() if usable is None else usable
    kind = "bf16" if has_bf16(torch.device("cpu")) else "fp32"
    capability = torch.backends.cpu.get_cpu_capability()
    found = f"{usable} cores, {threads} threads, {capability}, precision auto is {kind}"
    if threads <= usable:
        return CheckResult("processor", "ok", found)
    cure = f"more threads than cores are slow: set OMP_NUM_THREADS={usable}"
    return CheckResult("processor", "warn", found, cure)


def _usable() -> int:
    """Return the number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _number(version: str) -> tuple[int, ...]:
    """Parse a version: `2.13.0+cpu` is (2, 13, 0), an empty text is ()."""
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0])[:3])
