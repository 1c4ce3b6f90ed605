"""The wheel and the sdist: what is in them; and that either works outside of the checkout, as the checkout does."""

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
CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "NOTICE", "src")
MAX_WHEEL_BYTES = 3 << 20
BUILD = "from setuptools import build_meta as b; print(b.build_wheel('out')); print(b.build_sdist('out'))"
CHECKOUT = f"import sys; sys.path.insert(0, {str(ROOT / 'src')!r}); from paragan.__main__ import entry; entry()"
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


def test_sdist_has_the_sources_of_the_wheel_unchanged(built):
    with tarfile.open(built[1]) as archive:
        files = {entry.name.partition("/")[2]: entry for entry in archive.getmembers() if entry.isfile()}
        contents = {name: archive.extractfile(entry).read() for name, entry in files.items()}
    wheel = zipfile.ZipFile(built[0])
    package = {f"src/{name}" for name in wheel.namelist() if ".dist-info/" not in name}
    assert {name for name in contents if name.startswith("src/paragan/")} == package
    assert not [name for name in package if contents[name] != wheel.read(name.removeprefix("src/"))]
    for name in ("pyproject.toml", "LICENSE", "NOTICE", "README.md"):
        assert contents[name] == (ROOT / name).read_bytes()


def test_sdist_has_no_tests_pages_or_benchmarks(built):
    with tarfile.open(built[1]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert not [name for name in names if name.split("/")[0] in ("tests", "benchmarks", "examples", "docs", "pages")]


def test_version_is_the_same_wherever_it_stands():
    import yaml

    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    module = re.search(r'^__version__ = "(.*)"$', (ROOT / "src" / "paragan" / "__init__.py").read_text(), re.M).group(1)
    newest = re.search(r"^## (\d\S*) - \d{4}-\d\d-\d\d$", CHANGELOG, re.M).group(1)
    assert citation["version"] == module == newest == PROJECT["version"] and citation["license"] == PROJECT["license"]
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()


@pytest.mark.parametrize("section", re.split(r"^## ", CHANGELOG, flags=re.M)[1:], ids=lambda text: text.split()[0])
def test_changelog_of_a_version_fits_200_lines_and_its_links_exist(section):
    assert section.count("\n") <= 200
    links = re.findall(r"\]\((?!https?:)([^)#]+)", section)
    assert [link for link in links if not (ROOT / link).exists()] == []


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


def install(python: Path, package: Path, folder: Path, borrow: bool) -> bool:
    """Install a wheel or sdist; return whether torch is there. borrow: this environment's dependencies (.pth)."""
    pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    if borrow:
        (site,) = (folder / "venv").glob("lib/python*/site-packages")
        (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
        run([python, "-m", "pip", "uninstall", "--yes", "--quiet", "setuptools"], folder)  # that of a venv is too old
        run([*pip, "--no-deps", "--no-index", "--no-build-isolation", package], folder)
        return True
    constraints = ["-c", ROOT / "constraints.txt"]
    torch = re.search(r"^torch==.*$", (ROOT / "constraints.txt").read_text(), re.M).group()
    if subprocess.run([*pip, "--no-deps", f"{torch}+cpu"], capture_output=True, timeout=600).returncode == 0:
        run([*pip, *constraints, package], folder, 600)
        return True
    others = [need for need in PROJECT["dependencies"] if not need.startswith("torch")]
    run([*pip, *constraints, *others], folder, 600)
    run([*pip, "--no-deps", package], folder)
    return False


def train(program: list[str | Path], folder: Path, out: str) -> dict[str, bytes]:
    """Train the recipe digits in a folder; return the weights of the run by path."""
    assert "finished" in run([*program, "train", "digits", *SMALL, "--out", out], folder)
    files = (folder / out).glob("checkpoints/*/*.safetensors")
    return {path.relative_to(folder / out).as_posix(): path.read_bytes() for path in files}


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize(
    ("version", "kind"), [("3.11", "wheel"), ("3.11", "sdist"), ("3.12", "wheel"), ("3.13", "wheel")]
)
def test_package_in_an_empty_venv_trains_as_the_checkout_does(built, version, kind, tmp_path):
    """Dependencies of this environment for its Python version, or installed ones with PARAGAN_FULL_INSTALL=1."""
    run([find_python(version), "-m", "venv", tmp_path / "venv"], tmp_path)
    programs = tmp_path / "venv" / "bin"
    is_here = version == "{}.{}".format(*sys.version_info)
    has_torch = install(
        programs / "python", built[kind == "sdist"], tmp_path, is_here and "PARAGAN_FULL_INSTALL" not in os.environ
    )
    assert "digits" in run([programs / "paragan", "list", "recipes"], tmp_path)
    assert "kimg" in run([programs / "paragan", "config", "digits"], tmp_path)
    if not has_torch:
        pytest.skip(f"partly run: no CPU build of torch for Python {version}; commands without torch work")
    files = train([programs / "paragan"], tmp_path, "runs/digits")
    assert len(files) >= 2
    assert not is_here or files == train([sys.executable, "-P", "-c", CHECKOUT], tmp_path, "runs/checkout")
    run([programs / "paragan", "sample", "runs/digits", "--num", "4", "--out", "images"], tmp_path)
    assert "4 images" in run([programs / "paragan", "data", "check", "images"], tmp_path)
    assert "paragan" in run([programs / "paragan", "doctor"], tmp_path)
    run([programs / "python", "-c", USE], tmp_path)
