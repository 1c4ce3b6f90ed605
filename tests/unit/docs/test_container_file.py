"""The container file, as far as it can be checked without a container engine."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "Containerfile").read_text()


def copied() -> list[str]:
    lines = [line.split()[1:-1] for line in TEXT.splitlines() if line.startswith("COPY ")]
    return [name for names in lines for name in names]


def test_container_file_copies_what_the_build_needs_and_nothing_that_is_ignored():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert set(copied()) == allowed and all((ROOT / name).exists() for name in allowed)
    assert {"pyproject.toml", "constraints.txt", project["readme"], "src"} <= allowed


def test_container_file_installs_known_extras_with_the_constraints():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (extras,) = re.findall(r'-c /source/constraints\.txt "/source\[([a-z,]+)\]"', TEXT)
    assert set(extras.split(",")) <= set(project["optional-dependencies"])
    lowest = re.search(r"\d+\.(\d+)", project["requires-python"]).group(1)
    assert int(re.search(r"^FROM python:3\.(\d+)-slim$", TEXT, re.M).group(1)) >= int(lowest)


def test_container_file_does_not_run_as_root():
    assert re.search(r"^USER trainer$", TEXT, re.M)
