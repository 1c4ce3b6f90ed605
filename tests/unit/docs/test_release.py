"""The wheel and the sdist: what is in them; and that an installed wheel works outside of the checkout."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "NOTICE", "src")
MAX_WHEEL_BYTES = 3 << 20
BUILD = "from setuptools import build_meta as b; print(b.build_wheel('out')); print(b.build_sdist('out'))"
SMALL = ("data.size=8", "model.width=4", "train.kimg=0.64", "every.sample_kimg=0", "evaluation.num_images=50")
USE = """
import sys
import paragan as pg
assert pg.__file__.startswith(sys.prefix), pg.__file__
assert pg.load("runs/digits").sample(4, seed=0).tensor.shape == (4, 1, 8, 8)
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> tuple[Path, Path]:
    """Wheel and sdist, built from a copy of the sources."""
    pytest.importorskip("setuptools", minversion="77", reason="setuptools builds the wheel")
    folder = tmp_path_factory.mktemp("release")
    ignore = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in SOURCES:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, folder / name, **({"ignore": ignore} if (ROOT / name).is_dir() else {}))
    done = subprocess.run([sys.executable, "-c", BUILD], cwd=folder, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    paths = sorted((folder / "out").iterdir())
    wheel, sdist = (next(path for path in paths if path.name.endswith(end)) for end in (".whl", ".tar.gz"))
    return wheel, sdist


def test_wheel_has_all_files_of_the_package_and_no_others(built):
    names = set(zipfile.ZipFile(built[0]).namelist())
    package = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src" / "paragan").rglob("*")}
    package = {name for name in package if (ROOT / "src" / name).is_file() and "__pycache__" not in name}
    assert {name for name in names if ".dist-info/" not in name} == package
    assert "paragan/py.typed" in names


def test_wheel_is_small(built):
    assert built[0].stat().st_size <= MAX_WHEEL_BYTES


def test_wheel_declares_version_python_licence_and_command(built):
    archive = zipfile.ZipFile(built[0])
    (metadata,) = (archive.read(name).decode() for name in archive.namelist() if name.endswith("/METADATA"))
    (commands,) = (archive.read(name).decode() for name in archive.namelist() if name.endswith("/entry_points.txt"))
    for line in (f"Version: {PROJECT['version']}", "Requires-Python: >=3.11", "License-Expression: Apache-2.0"):
        assert f"\n{line}\n" in metadata
    assert "paragan = paragan.__main__:entry" in commands
    assert not re.search(r"Requires-Dist: torchvision", metadata)


def test_sdist_builds_the_same_package(built):
    with tarfile.open(built[1]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "LICENSE", "NOTICE", "README.md", "src/paragan/py.typed"} <= names
    assert not [name for name in names if name.split("/")[0] in ("tests", "benchmarks", "examples", "docs", "pages")]


def test_citation_file_has_the_version_of_the_package():
    import yaml

    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == PROJECT["version"] and citation["license"] == PROJECT["license"]
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()


def run(command: list[str | Path], folder: Path, timeout: float = 280) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PARAGAN"))}
    environment |= {"PARAGAN_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


def find_python(version: str) -> str:
    """Return an interpreter that starts: on PATH, or one of pyenv. Skips by name without one."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for path in (shutil.which(f"python{version}"), *pyenv.glob(f"{version}.*/bin/python{version}")):
        if path and subprocess.run([path, "--version"], capture_output=True, timeout=60).returncode == 0:
            return str(path)
    pytest.skip(f"not run: no python{version}")


def install(python: Path, wheel: Path, folder: Path, borrow: bool) -> bool:
    """Install a wheel; return whether torch is there. borrow: dependencies of this environment, by a .pth file."""
    pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    if borrow:
        (site,) = (folder / "venv").glob("lib/python*/site-packages")
        (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
        run([*pip, "--no-deps", "--no-index", wheel], folder)
        return True
    constraints = ["-c", ROOT / "constraints.txt"]
    torch = re.search(r"^torch==.*$", (ROOT / "constraints.txt").read_text(), re.M).group()
    if subprocess.run([*pip, "--no-deps", f"{torch}+cpu"], capture_output=True, timeout=600).returncode == 0:
        run([*pip, *constraints, wheel], folder, 600)
        return True
    others = [need for need in PROJECT["dependencies"] if not need.startswith("torch")]
    run([*pip, *constraints, *others], folder, 600)
    run([*pip, "--no-deps", wheel], folder)
    return False


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_wheel_in_an_empty_venv_trains_checks_and_loads(built, version, tmp_path):
    """Dependencies of this environment for its Python version, or installed ones with PARAGAN_FULL_INSTALL=1."""
    run([find_python(version), "-m", "venv", tmp_path / "venv"], tmp_path)
    programs = tmp_path / "venv" / "bin"
    borrow = version == "{}.{}".format(*sys.version_info) and "PARAGAN_FULL_INSTALL" not in os.environ
    has_torch = install(programs / "python", built[0], tmp_path, borrow)
    assert "digits" in run([programs / "paragan", "list", "recipes"], tmp_path)
    assert "kimg" in run([programs / "paragan", "config", "digits"], tmp_path)
    if not has_torch:
        pytest.skip(f"partly run: no CPU build of torch for Python {version}; commands without torch work")
    assert "finished" in run([programs / "paragan", "train", "digits", *SMALL], tmp_path)
    assert "paragan" in run([programs / "paragan", "doctor"], tmp_path)
    run([programs / "python", "-c", USE], tmp_path)
