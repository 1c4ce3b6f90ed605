"""Record what the package writes and prints, so that a change can be compared with the tree before it.

    python -m tests.golden.baseline FOLDER              everything below
    python -m tests.golden.baseline FOLDER digits own   runs of these recipes alone
    diff -r BEFORE AFTER                                what a change has changed

FOLDER/runs/RECIPE      every recipe trained for three steps on drawn data of 32 px, wide networks made narrow:
                        text files of the run folder without times and paths, `sha256.txt` of all others
FOLDER/config           `paragan config` of every recipe, alone and with every preset
FOLDER/settings.md      the reference of all settings
FOLDER/tests.txt        the collected tests
FOLDER/modules.txt      the modules that `train digits` imports

A run is one process with one thread; runs of the same tree on the same processor are equal.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

ROOT = Path(__file__).resolve().parents[2]
STEPS, BATCH = 3, 4
TEXTS = {".json", ".jsonl", ".yaml"}
VOLATILE = {"environment.json", "run.lock", "report.html"}  # the machine, the process, and both of them on a page
# times, and the fingerprint of a classifier, which holds the path of the data
OMITTED = {"seconds", "data_wait", "images_per_s", "eta_s", "wall_s", "phase_s", "per_step", "cpu_s", "fingerprint"}
FIRST = ("flow-digits", "flow-mnist", "flow-cifar10")  # other recipes start from their weights
NARROW = {  # recipe family -> settings for three steps on one core
    "biggan": ("model.width=4", "g.micro_batches=1", "d.micro_batches=1"),
    "contragan": ("model.width=4",),
    "reacgan": ("model.width=4",),
    "sagan": ("model.width=16",),
    "sngan": ("model.width=4",),
    "stylegan2": ("model.width=8", "model.base=64", "model.group=4"),
    "r3gan": ("model.width=8", "model.groups=4"),
    "pix2pix": ("model.width=4",),
}
_MODULES = """
import sys
from paragan.cli.main import main
main(sys.argv[1:])
print(*sorted(name for name in sys.modules if name.partition(".")[0] == "paragan"), sep="\\n", file=sys.stderr)
"""
_TIMEOUT_S = 600


def words_of(recipe: str, data: Path) -> list[str]:
    """The settings that make a recipe three steps long, on drawn data."""
    from paragan import config

    updates = config.read_recipe(recipe, _data_of(recipe, data)).d.updates_per_step
    kimg = STEPS * BATCH * updates / 1000
    words = [
        f"train.batch={BATCH}",
        f"train.kimg={kimg}",
        "train.threads=1",
        "every.log_steps=1",
        "evaluation.num_images=8",
    ]
    words += [f"every.{name}_kimg={kimg}" for name in ("sample", "save", "score")]
    if recipe not in ("digits", "own", "vocoder", "codec"):  # a score trains a classifier: seconds
        words.append("every.score_kimg=0")
    if recipe == "cellular-mnist":
        words += ["grid.batches=1", "grid.mixture.num_images=0", "grid.fitness.num_images=8"]
    family = next((name for name in NARROW if recipe.startswith(name)), "")
    return [*_data_of(recipe, data), *words, *NARROW.get(family, ())]


def _data_of(recipe: str, data: Path) -> list[str]:
    if "digits" in recipe or recipe in ("vocoder", "codec"):
        return []  # packaged
    if "mnist" in recipe:
        return [f"data.path={data / 'mnist'}"]
    if recipe == "pix2pix-facades":
        return [f"data.path={data / 'pairs'}"]
    if recipe == "translate":
        return [f"data.path={data / 'domains'}", "data.held_out=0.3"]
    if recipe == "superres":
        return [f"data.path={data / 'colour'}"]
    return [f"data={{name: folder, path: {data / 'colour'}, size: 32, flip: true}}"]


def draw_data(folder: Path) -> None:
    """Write 20 images in each of two classes, 20 in each of two domains, 20 pairs, and idx files."""
    draws = np.random.default_rng(0)
    (folder / "mnist").mkdir(parents=True)
    for kind, number in (("train", 200), ("t10k", 50)):
        images = draws.integers(0, 256, (number, 28, 28), dtype=np.uint8)
        labels = np.arange(number, dtype=np.uint8) % 10
        for name, values in ((f"{kind}-images-idx3-ubyte", images), (f"{kind}-labels-idx1-ubyte", labels)):
            head = struct.pack(f">{1 + values.ndim}i", 2048 + values.ndim, *values.shape)
            (folder / "mnist" / f"{name}.gz").write_bytes(gzip.compress(head + values.tobytes(), mtime=0))
    places = {"colour": (64, 64, 3), "domains": (64, 64, 3), "pairs": (256, 512, 3)}
    for name, shape in places.items():
        for kind in ("trainA", "trainB") if name == "domains" else ("",) if name == "pairs" else ("one", "two"):
            (folder / name / kind).mkdir(parents=True)
            for number in range(20):
                coarse = draws.integers(0, 256, (4, 4, *shape[2:]), dtype=np.uint8)
                image = Image.fromarray(coarse).resize((shape[1], shape[0]), Image.Resampling.BICUBIC)
                image.save(folder / name / kind / f"{number:02d}.png")


def record_run(recipe: str, place: Path, out: Path) -> None:
    """Train a recipe in `place` and write what its run folder holds to `out`."""
    words = words_of(recipe, place / "data")
    run = place / "runs" / recipe
    _paragan(["train", recipe, "--out", f"runs/{recipe}", *words], place)
    if recipe in FIRST:
        _paragan(["export", f"runs/{recipe}"], place)
    sums = {}
    for path in sorted(p for p in run.rglob("*") if p.is_file() and p.name not in VOLATILE):
        name = path.relative_to(run).as_posix()
        if path.suffix in TEXTS:
            target = out / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(_plain_text(path, place), encoding="utf-8")
        else:
            sums[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    out.mkdir(parents=True, exist_ok=True)
    (out / "sha256.txt").write_text("".join(f"{sums[name]}  {name}\n" for name in sums), encoding="utf-8")


def _plain_text(path: Path, place: Path) -> str:
    """The text without times, phases, checksums of other files, and the folder of this recording."""
    text = path.read_text(encoding="utf-8").replace(str(place), "PLACE").replace(sys.executable, "PYTHON")
    if path.suffix == ".yaml":
        return text
    entries = map(json.loads, text.splitlines()) if path.suffix == ".jsonl" else [json.loads(text)]
    kept = (
        _without_times(entry) for entry in entries if not (isinstance(entry, dict) and entry.get("kind") == "phases")
    )
    return "".join(json.dumps(entry, indent=1, sort_keys=True) + "\n" for entry in kept)


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_times(item) for key, item in value.items() if key not in OMITTED}
    return [_without_times(item) for item in value] if isinstance(value, list) else value


def record_configs(out: Path, place: Path) -> None:
    """Write the resolved config of every recipe, alone and with every preset; an error is a result too."""
    from paragan.core import registry

    out.mkdir(parents=True, exist_ok=True)
    for recipe in registry.names("recipes"):
        for preset in ("", *registry.names("presets")):
            words = [f"preset={preset}"] if preset else []
            done = _run(
                [
                    "-c",
                    "import sys; from paragan.cli.main import main; sys.exit(main(sys.argv[1:]))",
                    "config",
                    recipe,
                    *words,
                ],
                place,
            )
            (out / f"{recipe}{'+' * bool(preset)}{preset}.yaml").write_text(done.stdout + done.stderr, encoding="utf-8")


def record_lists(out: Path, place: Path) -> None:
    """Write the reference of settings, the collected tests and the imported modules."""
    shutil.copy(ROOT / "docs" / "settings.md", out / "settings.md")
    tests = _run(["-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"], ROOT)
    names = [line for line in tests.stdout.splitlines() if "::" in line]
    (out / "tests.txt").write_text("\n".join(sorted(names)) + "\n", encoding="utf-8")
    words = words_of("digits", place / "data")
    done = _run(["-c", _MODULES, "train", "digits", "--out", str(place / "runs" / "modules"), *words], place)
    modules = [line for line in done.stderr.splitlines() if re.fullmatch(r"paragan(\.\w+)*", line)]
    (out / "modules.txt").write_text("\n".join(modules) + "\n", encoding="utf-8")


def _paragan(words: list[str], place: Path) -> None:
    done = _run(["-m", "paragan", *words], place)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}: exit {done.returncode}\n{done.stdout}{done.stderr}")


def _run(arguments: list[str], place: Path) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
    settings = {
        "PYTHONPATH": paths,
        "OMP_NUM_THREADS": "1",
        "PARAGAN_COMMAND": "paragan",
        "PARAGAN_CACHE": str(place / "cache"),
    }
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, cwd=place, env={**os.environ, **settings}, capture_output=True, text=True, timeout=_TIMEOUT_S
    )


def main(words: list[str]) -> int:
    from paragan.core import registry
    from paragan.core.errors import ParaganError

    folder, *chosen = words
    out = Path(folder).resolve()
    names = chosen or [*FIRST, *(name for name in registry.names("recipes") if name not in FIRST)]
    failed = 0
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        draw_data(place / "data")
        for name in names:
            shutil.rmtree(out / "runs" / name, ignore_errors=True)
            try:
                record_run(name, place, out / "runs" / name)
            except (RuntimeError, ParaganError) as error:
                print(error, flush=True)
                failed += 1
            else:
                print(f"{name}: recorded", flush=True)
        if not chosen:
            record_configs(out / "config", place)
            record_lists(out, place)
    return 1 if failed else 0


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1:]))
