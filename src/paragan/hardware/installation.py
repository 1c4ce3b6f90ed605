"""Checks of the installation: versions, build of torch, processor and accelerators."""

import importlib.metadata
import importlib.util
import os
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping

import paragan
from paragan.core.printable import counted
from paragan.core.process_environment import num_cores
from paragan.hardware.health import CheckResult

Versions = Mapping[str, str]
_PACKAGES = {"PIL": "pillow", "annotated_types": "annotated-types", "yaml": "pyyaml"}  # by their modules, if different
_NVIDIA_DRIVER = "/proc/driver/nvidia/version"


def versions() -> dict[str, str]:
    """Return the version of every installed distribution by its lower-case name."""
    return {name.lower(): d.version for d in importlib.metadata.distributions() if (name := d.metadata["Name"])}


def requirements() -> dict[str, str]:
    """Return the minimum version of every required package, by name."""
    lines = importlib.metadata.requires("paragan") or []
    pairs = [line.split(">=") for line in lines if "extra ==" not in line]
    return {name.strip(): minimum.strip() for name, minimum in pairs}


def report_missing(error: ModuleNotFoundError) -> int:
    """Say how a required package is installed, and return the exit code; raise the error of any other module."""
    package = _PACKAGES.get(error.name or "", error.name)
    if package not in requirements():
        raise error
    command = shlex.join([sys.executable, "-m", "pip", "install", package])
    print(f"{package} is not installed for {sys.executable}; run: {command}", file=sys.stderr)
    return 2


def python() -> CheckResult:
    """Report the versions of paragan, Python and the system."""
    system = f"{platform.system()} {platform.release()} {platform.machine()}"
    python = platform.python_version()
    return CheckResult("paragan", "ok", f"{paragan.__version__}, Python {python}, {system}")


def packages(installed: Callable[[], Versions] = versions) -> CheckResult:
    """Check the required packages and their minimum versions."""
    present = installed()
    minima = requirements()
    outdated = [f"'{k}>={minimum}'" for k, minimum in minima.items() if _number(present.get(k, "")) < _number(minimum)]
    texts = ", ".join(f"{name} {present.get(name, 'missing')}" for name in minima)
    cure = f"install what is missing or too old: pip install {' '.join(outdated)}" if outdated else ""
    return CheckResult("packages", "FAIL" if outdated else "ok", texts, cure)


def torchvision(timeout_s: float = 20.0) -> CheckResult:
    """Check that torchvision, if present, can be imported: it must be built for this torch."""
    if importlib.util.find_spec("torchvision") is None:
        return CheckResult("torchvision", "ok", "absent; paragan does not need it")
    present = versions()
    pair = f"torchvision {present.get('torchvision', '')} with torch {present.get('torch', 'missing')}"
    try:
        command = [sys.executable, "-c", "import torchvision"]
        completed = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired:
        reason = f"its import did not end within {timeout_s:g} s"
    else:
        if completed.returncode == 0:
            return CheckResult("torchvision", "ok", pair)
        reason = (completed.stderr.strip().splitlines() or ["its import fails"])[-1]
    cure = "it does not match this build of torch; paragan does not need it; remove it with `pip uninstall torchvision`"
    return CheckResult("torchvision", "warn", f"{pair}: {reason}", cure)


def torch_build() -> str:
    """Return the accelerator that torch is built for: cpu, or such as "cuda 13.0"; imports torch."""
    import torch

    kinds = {"cuda": torch.version.cuda, "hip": torch.version.hip, "xpu": torch.version.xpu}
    return next((f"{kind} {version}" for kind, version in kinds.items() if version), "cpu")


def visible_devices() -> list[str]:
    """Return name and memory of each accelerator; imports torch."""
    import torch

    kind = torch.accelerator.current_accelerator(check_available=True)
    if kind is None:
        return []
    count = torch.accelerator.device_count()
    if kind.type not in ("cuda", "xpu"):
        return [f"{kind.type} x {count}"]
    properties = torch.get_device_module(kind).get_device_properties
    return [f"{properties(n).name} ({properties(n).total_memory / 1e9:.0f} GB)" for n in range(count)]


def devices(
    build: Callable[[], str] = torch_build,
    visible: Callable[[], list[str]] = visible_devices,
    driver: Callable[[], bool] = lambda: os.path.exists(_NVIDIA_DRIVER),
) -> CheckResult:
    """Check the accelerators that torch finds against its build and the driver."""
    try:
        names = visible()
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
        return CheckResult("devices", "warn", "an NVIDIA driver is installed, but torch is a CPU build", cure)
    return CheckResult("devices", "ok", "none: the CPU is used")


def processor(threads: int | None = None, usable: int | None = None) -> CheckResult:
    """Check threads and vector units, and report the CPU's `precision: auto`; imports torch."""
    import torch

    from paragan.hardware.precision import has_bf16

    threads = torch.get_num_threads() if threads is None else threads
    usable = num_cores() if usable is None else usable
    kind = "bf16" if has_bf16(torch.device("cpu")) else "fp32"
    capability = torch.backends.cpu.get_cpu_capability()
    text = f"{counted(usable, 'core')}, {counted(threads, 'thread')}, {capability}, precision auto is {kind} for D"
    cure = "" if threads <= usable else f"more threads than cores are slow: set OMP_NUM_THREADS={usable}"
    return CheckResult("processor", "warn" if cure else "ok", text, cure)


def _number(version: str) -> tuple[int, ...]:
    """Parse a version: `2.13.0+cpu` is (2, 13, 0), an empty text is ()."""
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0])[:3])
