"""Bad settings, each with its cause: is the cause named within 10 kimg, and does the printed command repair the run?

    python -m benchmarks.bad_settings --keep FOLDER                 the twelve settings, and healthy runs
    python -m benchmarks.bad_settings --keep FOLDER --held-out      eight others, which no threshold was chosen with
    python -m benchmarks.bad_settings NAME … --keep FOLDER          these runs only; finished ones stay in FOLDER

All runs train recipe `own` at 32 px on one CPU core. A cause is *named* if the first advice within 10 kimg changes a
setting that was made bad, or one of the alternatives below. The command of that advice is then run to 20 kimg. Both
runs have rollbacks off. It has *repaired* the run if fd falls to less than half of that of the untrained generator,
samples are at least 0.4 times as diverse as real images, and the run reaches its end. Healthy runs of 40 kimg must
print no advice.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw, ImageFont

from benchmarks.record import write
from paragan.cli.main import main as run_command
from paragan.config import dump, read_recipe
from paragan.config.sections import ANY
from paragan.core.files import read_json_lines
from tests.training.test_own_images import icons, letters

BAD_KIMG = (2.56, 5.12, 10.24)  # a run that was told what to change is not trained on
REPAIRED_KIMG = 20.48
HEALTHY_KIMG = 40.96
QUIET = ("evaluation.features=null",)
ALONE = ("rollback=null",)  # so that the settings are judged, and not what repairs them along the run
SCORED = ("evaluation.num_images=1000", f"every.score_kimg={REPAIRED_KIMG}", *ALONE)


def numerals(folder: Path, count: int = 1500) -> Path:
    """Draw white digits on black, with a folder for each class."""
    draws = random.Random(7)
    for number in range(count):
        image = Image.new("RGB", (32, 32), "black")
        digit = str(number % 10)
        font = ImageFont.load_default(draws.randint(20, 28))
        at = (16 + draws.randint(-3, 3), 16 + draws.randint(-3, 3))
        grey = draws.randint(160, 255)
        ImageDraw.Draw(image).text(at, digit, (grey, grey, grey), font, "mm")
        (folder / digit).mkdir(parents=True, exist_ok=True)
        image.save(folder / digit / f"{number:04}.png")
    return folder


def few_letters(folder: Path) -> Path:
    return letters(folder, 70)


def few_icons(folder: Path) -> Path:
    return icons(folder, 50)


@dataclass(frozen=True)
class BadSetting:
    """A run of `own` that something is wrong with.

    words: what is wrong. keys: settings of which the advice must change one, or its name where none repairs the run.
    make: draws the folder of images.
    """

    words: tuple[str, ...]
    keys: tuple[str, ...]
    make: Callable[[Path], Path] = letters


def _rates(g: str | None = None, d: str | None = None) -> tuple[str, ...]:
    rates = {"g.optimizer.lr": g, "d.optimizer.lr": d}
    return tuple(f"{key}={rate}" for key, rate in rates.items() if rate is not None)


_MOMENTUM = "optimizer.arguments={betas: [0.9, 0.999]}"
G_RATE = "g.optimizer.lr"
D_RATE = "d.optimizer.lr"

# fixed on 2026-11-29, before any threshold was chosen
BAD = {
    "both rates high": BadSetting(_rates("1e-2", "1e-2"), (G_RATE, D_RATE)),
    "no penalty": BadSetting(("penalties=[]", *_rates(d="4e-3")), ("penalties", D_RATE)),
    "d rate high": BadSetting(_rates(d="3e-2"), (D_RATE,)),
    "g rate high": BadSetting(_rates(g="3e-2"), (G_RATE,)),
    "d rate low": BadSetting(_rates(d="1e-5"), (D_RATE,)),
    "g rate low": BadSetting(_rates(g="1e-5"), (G_RATE,)),
    "momentum": BadSetting(
        (*_rates("5e-3", "5e-3"), f"g.{_MOMENTUM}", f"d.{_MOMENTUM}"),
        (G_RATE, D_RATE, "g.optimizer.arguments.betas", "d.optimizer.arguments.betas"),
    ),
    "d updates": BadSetting(("d.updates_per_step=20",), ("d.updates_per_step",)),
    "r1 strong": BadSetting(("penalties.0.weight=1000",), ("penalties.0.weight",)),
    "memorises": BadSetting(("augment=null",), ("augment", "augment.name"), few_letters),
    "wasserstein": BadSetting(("loss=wasserstein", "penalties=[]"), ("penalties", "loss", "loss.name")),
    "sigmoid": BadSetting(("model=benchmarks.sigmoid_dcgan",), ("out_of_reach",)),
}
HELD_OUT = {
    "both rates 2e-2": BadSetting(_rates("2e-2", "2e-2"), (G_RATE, D_RATE), icons),
    "no penalty, d rate": BadSetting(("penalties=[]", *_rates(d="1e-2")), ("penalties", D_RATE), numerals),
    "g rate 1e-2": BadSetting(_rates(g="1e-2"), (G_RATE,), icons),
    "d rate 3e-6": BadSetting(_rates(d="3e-6"), (D_RATE,), numerals),
    "small batch": BadSetting(("train.batch=4", *_rates("4e-3", "4e-3")), ("train.batch", G_RATE, D_RATE)),
    "r1 200": BadSetting(("penalties.0.weight=200",), ("penalties.0.weight",), icons),
    "few icons": BadSetting(("augment=null", "penalties=[]"), ("augment", "augment.name", "penalties"), few_icons),
    "hinge": BadSetting(
        ("loss=hinge", "penalties=[]", "d.updates_per_step=8"), ("penalties", "d.updates_per_step"), numerals
    ),
}
HEALTHY: dict[str, tuple[Callable[[Path], Path] | None, str]] = {
    "healthy letters": (letters, "own"),
    "healthy icons": (icons, "own"),
    "healthy numerals": (numerals, "own"),
    "healthy digits": (None, "digits"),
}


def train(words: Sequence[str], out: Path) -> list[Mapping[str, Any]]:
    """Train, or resume, by the command line; return the record of the run. Raises `SystemExit` if that failed."""
    code = run_command(["train", *words, "--out", str(out)])
    if code:
        raise SystemExit(f"{out}: exit code {code}")
    return list(read_json_lines(out / "metrics.jsonl"))


def advice_of(lines: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the advice of a record."""
    names = ("name", "kimg", "means", "try", "changes", "command")
    return [{name: line.get(name) for name in names} for line in lines if line["kind"] == "advice"]


def judge_bad(setting: BadSetting, folder: Path, out: Path) -> dict[str, Any]:
    """Train a bad setting until it gets a command, to 10 kimg at most, and then what that says to 20 kimg."""
    shutil.rmtree(out, ignore_errors=True)
    advice: list[dict[str, Any]] = []
    for kimg in BAD_KIMG:
        if not any(entry["command"] for entry in advice):
            words = ["own", f"data.path={folder}", f"train.kimg={kimg}", *QUIET, *ALONE, *setting.words]
            advice = advice_of(train(words, out))
    first = advice[0] if advice else {"name": "", "changes": None, "command": None}
    repaired = None if first["command"] is None else trained(words_of(first["command"]), REPAIRED_KIMG, out.parent)
    suspects = [*(first["changes"] or {}), first["name"]]
    return {
        "settings": setting.words,
        "named": any(key in setting.keys or key.split(".")[0] in setting.keys for key in suspects),
        "repaired": repaired is not None and is_repaired(repaired),
        "advice": advice,
        "after the command": repaired,
    }


def words_of(command: str) -> list[str]:
    """Return the recipe and settings of a printed command, without those that a shorter run had."""
    words = shlex.split(command)
    words = words[words.index("train") + 1 : words.index("--out")]
    return [word for word in words if word not in (*QUIET, *ALONE) and not word.startswith("train.kimg=")]


def trained(words: Sequence[str], kimg: float, keep: Path) -> dict[str, Any]:
    """Train settings to a length, with scores; return what they reached.

    Equal settings are trained once, and longer if needed, which is bit for bit as if at once.
    """
    text = dump(read_recipe(words[0], [*words[1:], *SCORED], outside=ANY))
    out = keep / f"run-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    data = next((word.partition("=")[2] for word in words if word.startswith("data.path=")), "digits")
    judge = keep / f"judge-{Path(data).name}"
    if not out.exists() and judge.exists():
        shutil.copytree(judge, out / "judge")
    done = list(read_json_lines(out / "metrics.jsonl")) if (out / "exit.json").exists() else [{"kind": "", "kimg": 0}]
    lines = done if done[-1]["kimg"] >= kimg else train([*words, f"train.kimg={kimg}", *SCORED], out)
    if not judge.exists():
        shutil.copytree(out / "judge", judge)
    lines = [line for line in lines if line["kimg"] <= kimg]
    return {
        "run": out.name,
        "fd": [(line["kimg"], line["fd[judge]"]) for line in lines if line["kind"] == "score"],
        "diversity": [line["diversity"] for line in lines if line["kind"] == "telemetry"][-1],
        "advice": advice_of(lines),
    }


def is_repaired(run: dict[str, Any]) -> bool:
    """Return whether a run has learned: fd has halved and samples differ."""
    first, *_, last = (distance for _, distance in run["fd"])
    return last < first / 2 and run["diversity"] >= 0.4


def judge_healthy(name: str, keep: Path) -> dict[str, Any]:
    """Train a healthy run of 40 kimg."""
    make, recipe = HEALTHY[name]
    data = [] if make is None else [f"data.path={made(make, keep)}"]
    run = trained([recipe, *data], HEALTHY_KIMG, keep)
    return {"quiet": not run["advice"], **run}


def made(make: Callable[[Path], Path], keep: Path) -> Path:
    """Return a folder of images, drawn at the first call."""
    folder = keep / "images" / make.__name__
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        make(folder)
    return folder


def judge(name: str, keep: Path) -> dict[str, Any]:
    """Return the result of a run, from its file if it has finished before."""
    file = keep / f"{name}.json"
    if not file.exists():
        if name in HEALTHY:
            found = judge_healthy(name, keep)
        else:
            setting = {**BAD, **HELD_OUT}[name]
            found = judge_bad(setting, made(setting.make, keep), keep / name.replace(" ", "-").replace(",", ""))
        file.write_text(json.dumps(found))
    found = json.loads(file.read_text())
    print(f"{name}:", {key: found[key] for key in ("named", "repaired", "quiet") if key in found}, flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--keep", type=Path, required=True)
    parser.add_argument("--held-out", action="store_true")
    options = parser.parse_args()
    options.keep.mkdir(parents=True, exist_ok=True)
    names = options.names or list(HELD_OUT if options.held_out else {**BAD, **HEALTHY})
    found = {name: judge(name, options.keep) for name in names}
    if not options.names:
        counts = {key: sum(run.get(key, False) for run in found.values()) for key in ("named", "repaired", "quiet")}
        write("bad-settings-held-out" if options.held_out else "bad-settings", {**counts, "runs": found})


if __name__ == "__main__":
    main()
