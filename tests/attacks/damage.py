"""Damage to a stopped run, one kind at a time: `python -m tests.attacks.damage FOLDER [EVERY]`.

The run has done half of its steps. After each damage the same command runs to the end. It either reaches the weights of
the undisturbed run, or refuses in one line with exit code 2; damage to the newest checkpoint is never refused, since
an older one is there. Prints one JSON object: {"damages": int, "refused": [name], "failed": {name: reason}}.
"""

import contextlib
import io
import json
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

from paragan.engine import telemetry
from paragan.features.base import classifier as classifier
from tests.attacks import small_run
from tests.attacks.fuzz import INPUT_S, SEED, OutOfTime, out_of_time

SCORED = ("evaluation.features=judge", "evaluation.num_images=16", "every.score_kimg=0.032")
_FLIPS = 4

Damage = Callable[[Path], None]


def damages(run: Path) -> Iterator[tuple[str, Damage]]:
    """Every damage by name; each takes the folder of a copy of `run`."""
    draws = Random(SEED)
    checkpoint = small_run.newest_checkpoint(run).relative_to(run)
    names = sorted(str(path.relative_to(run)) for path in run.rglob("*") if path.is_file())
    for name in names:
        in_checkpoint = Path(name).parent == checkpoint
        size = (run / name).stat().st_size
        for _ in range(_FLIPS if in_checkpoint else 1):
            if size:
                bit = draws.randrange(8 * size)
                yield f"bit {bit} of {name} flipped", lambda folder, n=name, b=bit: _flip(folder / n, b)
        yield f"{name} truncated", lambda folder, n=name, s=size: os.truncate(folder / n, s // 2)
        yield f"{name} deleted", lambda folder, n=name: (folder / n).unlink()
        yield f"{name} is a pipe", lambda folder, n=name: _replace(folder / n, os.mkfifo)
        yield f"{name} is a folder", lambda folder, n=name: _replace(folder / n, os.mkdir)
        if in_checkpoint:
            yield f"{name} is a link to /dev/zero", lambda folder, n=name: _replace(folder / n, _link_to_zero)
    g, d = checkpoint / "g.safetensors", checkpoint / "d.safetensors"
    yield "g and d swapped", lambda folder: _swap(folder / g, folder / d)
    yield "g with a header of 2^40 bytes", lambda folder: _overwrite(folder / g, (1 << 40).to_bytes(8, "little"))
    yield "the newest checkpoint deleted", lambda folder: shutil.rmtree(folder / checkpoint)
    yield "the newest checkpoint empty", lambda folder: _replace(folder / checkpoint, os.mkdir)
    yield "the newest checkpoint is a file", lambda folder: _replace(folder / checkpoint, lambda p: p.write_text("x"))


def _flip(path: Path, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


def _replace(path: Path, make: Callable[[Path], object]) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    make(path)


def _link_to_zero(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _swap(one: Path, other: Path) -> None:
    between = one.with_suffix(".between")
    one.rename(between)
    other.rename(one)
    between.rename(other)


def _overwrite(path: Path, start: bytes) -> None:
    path.write_bytes(start + path.read_bytes()[len(start) :])


def weights(run: Path) -> dict[str, bytes]:
    """Every file of the newest checkpoint."""
    return {path.name: path.read_bytes() for path in small_run.newest_checkpoint(run).iterdir()}


def attack(root: Path, every: int = 1) -> dict:
    signal.signal(signal.SIGALRM, out_of_time)
    classifier.STEPS, telemetry.NUM_IMAGES = 20, 32
    small_run.train(root / "half", *SCORED)
    small_run.train(root / "straight", *SCORED, "train.kimg=0.128")
    expected, checkpoint = (
        weights(root / "straight"),
        small_run.newest_checkpoint(root / "half").relative_to(root / "half"),
    )
    refused, failed = [], {}
    found = list(damages(root / "half"))[::every]
    for number, (name, damage) in enumerate(found):
        run = Path(shutil.copytree(root / "half", root / str(number)))
        damage(run)
        said = io.StringIO()
        signal.alarm(6 * INPUT_S)
        try:
            with contextlib.redirect_stderr(said):
                code = small_run.train(run, *SCORED, "train.kimg=0.128")
            if code == 2 and str(checkpoint) not in name and "newest" not in name:
                refused.append(f"{name}: {said.getvalue().strip()}")
            elif code != 0:
                failed[name] = f"exit code {code}: {said.getvalue()[-500:]}"
            elif weights(run) != expected:
                failed[name] = "other weights"
        except OutOfTime:
            failed[name] = "hangs"
        except BaseException:
            failed[name] = traceback.format_exc()[-700:]
        finally:
            signal.alarm(0)
        shutil.rmtree(run)
    return {"damages": len(found), "refused": refused, "failed": failed}


if __name__ == "__main__":
    print(json.dumps(attack(Path(sys.argv[1]).resolve(), int(sys.argv[2]) if len(sys.argv) > 2 else 1)))
