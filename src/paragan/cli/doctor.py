"""`paragan doctor`: checks of the installation and the machine, as text for a bug report."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from paragan.cli.arguments import AsJson
from paragan.hardware import health, installation, loopback
from paragan.hardware.health import CheckResult

Check = Callable[[], CheckResult]

ALWAYS: tuple[Check, ...] = (
    installation.python,
    installation.packages,
    installation.unused_nvidia_packages,
    health.writable,
    health.disk,
    health.temporary_disk,
    health.shared_memory,
    health.open_files,
    health.encoding,
    health.clock,
    health.monotonic,
    health.port,
)
WITHOUT_TORCH: tuple[Check, ...] = (installation.torchvision,)
WITH_TORCH: tuple[Check, ...] = (
    installation.torchvision_with_import,
    installation.processor,
    installation.devices,
    loopback.all_reduce,
)
Fast = Annotated[bool, typer.Option("--fast", help="Skip the checks that need torch or other processes.")]


def doctor(as_json: AsJson = False, fast: Fast = False) -> None:
    """Check the installation and this machine. Prints text to paste into a bug report."""
    findings = []
    for finding in examine((*ALWAYS, *(WITHOUT_TORCH if fast else WITH_TORCH))):
        findings.append(finding)
        if not as_json:
            print(format_finding(finding), flush=True)
    counts = {level: sum(finding.level == level for finding in findings) for level in ("ok", "warn", "FAIL")}
    if as_json:
        print(json.dumps({"counts": counts, "findings": [asdict(finding) for finding in findings]}, indent=1))
    else:
        print(", ".join(f"{count} {level}" for level, count in counts.items()))
    raise typer.Exit(2 if counts["FAIL"] else 0)


def examine(checks: tuple[Check, ...]) -> Iterator[CheckResult]:
    """Run the checks. A check that raises is itself a finding. The home folder is printed as ~."""
    for check in checks:
        try:
            finding = check()
        except Exception as error:
            text = f"{type(error).__name__}: {error}".splitlines()[0][:200]
            finding = CheckResult(check.__name__, "warn", text, "the check itself failed: please report it")
        yield CheckResult(finding.name, finding.level, _without_home(finding.message), _without_home(finding.fix))


def format_finding(finding: CheckResult) -> str:
    """Return one line of the output."""
    return f"{finding.level:<4}  {finding.name:<15}  {finding.message}" + (f"; {finding.fix}" if finding.fix else "")


def _without_home(text: str) -> str:
    home = str(Path.home())
    return text if home == "/" else text.replace(home, "~")
