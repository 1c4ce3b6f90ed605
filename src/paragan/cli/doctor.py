"""`paragan doctor`: checks of the installation and the machine, as text for a bug report."""

import importlib.util
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
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
    health.writable,
    health.disk,
    health.shared_memory,
    health.open_files,
)
WITH_TORCH: tuple[Check, ...] = (
    installation.torchvision,
    installation.processor,
    installation.devices,
    loopback.all_reduce,
)
Fast = Annotated[bool, typer.Option("--fast", help="Skip the checks that need torch or other processes.")]


def doctor(as_json: AsJson = False, fast: Fast = False) -> None:
    """Check the installation and this machine. Prints text to paste into a bug report."""
    findings = []
    has_torch = importlib.util.find_spec("torch") is not None  # else the check of packages says so
    for finding in examine((*ALWAYS, *WITH_TORCH) if has_torch and not fast else ALWAYS):
        findings.append(finding)
        if not as_json:
            print(format_finding(finding), flush=True)
    counts = {level: sum(f.level == level for f in findings) for level in ("ok", "warn", "FAIL")}
    if as_json:
        about = {"counts": counts, "findings": [asdict(finding) for finding in findings]}
        print(json.dumps(about, indent=1))
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
            advice = "the check itself failed: please report it"
            finding = CheckResult(check.__name__, "warn", text, advice)
        yield replace(finding, message=_without_home(finding.message), fix=_without_home(finding.fix))


def format_finding(finding: CheckResult) -> str:
    """Return one line of the output."""
    fix = f"; {finding.fix}" if finding.fix else ""
    return f"{finding.level:<4}  {finding.name:<15}  {finding.message}{fix}"


def _without_home(text: str) -> str:
    home = str(Path.home())
    return text if home == "/" else text.replace(home, "~")
