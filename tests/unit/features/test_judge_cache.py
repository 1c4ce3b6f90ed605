"""The classifier that a run trains on its images is trained once for all runs on these images."""

import hashlib
import json
import math
import os
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load, save

from paragan import build
from paragan.build.evaluation import extractor_context
from paragan.config import read_recipe
from paragan.config.sections import ANY
from paragan.core.errors import ConfigError
from paragan.core.files import create_subfolder
from paragan.core.interrupt import Interrupt
from paragan.datasets import digits
from paragan.features import judge as judging
from paragan.features.base import classifier
from paragan.features.judge import Options, prepare, train_or_load
from paragan.runs.run_request import RunRequest
from paragan.runs.train import train_run

PLAIN = (
    *("data.size=8", "model.width=4", "model.latent=8", "train.batch=16", "augment=null", "train.threads=1"),
    *("every.sample_kimg=0", "every.save_kimg=0", "evaluation.num_images=100", "writers=[jsonl]", "train.kimg=0.032"),
    *("g.precision=fp32", "d.precision=fp32"),
)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PARAGAN_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "classifiers"


@pytest.fixture
def trainings(monkeypatch):
    """How often a classifier is trained, in three steps."""
    counts = []
    whole = judging.train_classifier
    monkeypatch.setattr(classifier, "STEPS", 3)

    def counted(train, seed, progress):
        counts.append(seed)
        return whole(train, seed, progress)

    monkeypatch.setattr(judging, "train_classifier", counted)
    return counts


@pytest.fixture(scope="module")
def small():
    return tuple(digits.source(digits.Options(8), split) for split in ("train", "held_out"))


def same(a, b):
    pairs = zip(a.network.state_dict().values(), b.network.state_dict().values(), strict=True)
    return all(torch.equal(x, y) for x, y in pairs) and (a.sha256, a.accuracy) == (b.sha256, b.accuracy)


def test_judge_from_the_cache_equals_the_trained_one(small, tmp_path, cache, trainings):
    trained = train_or_load(*small, tmp_path / "a", cache=cache)
    cached = train_or_load(*small, tmp_path / "b", cache=cache)
    assert trainings == [0]
    assert same(trained, cached)
    assert (tmp_path / "b" / "judge.json").read_bytes() == (tmp_path / "a" / "judge.json").read_bytes()
    assert same(cached, train_or_load(*small, tmp_path / "b"))  # the run folder needs no cache


def scored(out: Path) -> list[str]:
    request = RunRequest(config=read_recipe("digits", PLAIN), name="digits", out=out, has_commands=True)
    assert train_run(request, Interrupt()) == 0
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    timed = ("seconds", "num_images")
    return [str({k: v for k, v in line.items() if k not in timed}) for line in lines if line["kind"] == "score"]


def test_second_run_on_the_same_images_has_the_scores_of_the_first_without_training(tmp_path, cache, trainings):
    first = scored(tmp_path / "first")
    assert scored(tmp_path / "second") == first
    assert (len(first), trainings) == (2, [0])
    judging.remove_tree(cache)  # which may be deleted at any time
    assert scored(tmp_path / "third") == first
    assert trainings == [0, 0]


def write_images(folder: Path, pixels: list[int]) -> None:
    """Write images of eight classes of brightness as .bmp: files of one size, and of one time."""
    for number, pixel in enumerate(pixels):
        path = create_subfolder(folder, "ab"[number % 2]) / f"{number:03d}.bmp"
        Image.fromarray(np.full((16, 16, 3), pixel, np.uint8)).save(path)
        os.utime(path, (1_000_000_000, 1_000_000_000))


def judge_of(folder: Path, *words: str) -> None:
    train_judge("own", folder, f"data.path={folder}", "data.size=16", *words)


def train_judge(recipe: str, folder: Path, *words: str) -> None:
    data = build.open_data(read_recipe(recipe, words, ANY))
    context = extractor_context(data, folder, print, torch.device("cpu"))
    prepare(Options(), replace(context, folder=None))()


def repaint(folder: Path) -> None:
    write_images(folder, [7 * n % 256 for n in range(60)])


def rename_a_class(folder: Path) -> None:
    (folder / "a").rename(folder / "c")


def add_an_image(folder: Path) -> None:
    Image.new("RGB", (16, 16)).save(folder / "a" / "more.png")


def touch_an_image(folder: Path) -> None:
    os.utime(folder / "a" / "000.bmp")


@pytest.mark.parametrize("change", [repaint, rename_a_class, add_an_image, touch_an_image])
def test_changed_folder_trains_anew(tmp_path, cache, trainings, change):
    """Also one whose files have the names, sizes and times of another's, as out of reproducible archives."""
    folder = tmp_path / "images"
    write_images(folder, [3 * n % 256 for n in range(60)])
    judge_of(folder)
    judge_of(folder)
    assert len(trainings) == 1
    change(folder)
    judge_of(folder)
    assert len(trainings) == 2


@pytest.mark.parametrize("word", ["data.size=8", "data.channels=1", "data.labels=false"])
def test_other_settings_of_data_train_anew_where_the_images_or_classes_differ(tmp_path, cache, trainings, word):
    write_images(tmp_path / "images", [3 * n % 256 for n in range(60)])
    judge_of(tmp_path / "images")
    judge_of(tmp_path / "images", word)
    assert len(trainings) == (1 if word == "data.labels=false" else 2)  # the hidden labels are learnt all the same


@pytest.mark.parametrize("name", ["judge.json", "judge.safetensors"])
@pytest.mark.parametrize("spoil", [lambda b: b[: len(b) // 2], lambda b: b"", lambda b: b"\x80\x04K\x01."])
def test_damaged_entry_is_trained_anew_and_replaced(small, cache, trainings, name, spoil):
    """The last one is a pickle: nothing unpickles it."""
    trained = train_or_load(*small, None, cache=cache)
    path = next(cache.glob(f"*/{name}"))
    path.write_bytes(spoil(path.read_bytes()))
    assert same(train_or_load(*small, None, cache=cache), trained)
    assert same(train_or_load(*small, None, cache=cache), trained)
    assert len(trainings) == 2


def test_cache_holds_the_last_used_64(small, cache, trainings):
    train_or_load(*small, None, cache=cache)
    (used,) = cache.iterdir()
    for number in range(70):
        create_subfolder(cache, f"{number:064x}")
        os.utime(cache / f"{number:064x}", (number, number))
    train_or_load(*small, None, seed=1, cache=cache)
    names = {path.name for path in cache.iterdir()}
    assert len(names) == 64
    assert used.name in names
    assert f"{7:064x}" not in names
    assert f"{8:064x}" in names


@pytest.mark.parametrize("name", ["mine", "0" * 63, "A" * 64])
def test_other_folders_in_the_cache_stay(small, cache, trainings, name):
    for number in range(70):
        create_subfolder(cache, f"{name}-{number}" if number else name)
        os.utime(cache / (f"{name}-{number}" if number else name), (number, number))
    train_or_load(*small, None, cache=cache)
    assert len(list(cache.iterdir())) == 71


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("where", ["weights", "accuracy"])
def test_entry_that_is_not_finite_is_trained_anew(small, cache, trainings, where, value):
    trained = train_or_load(*small, None, cache=cache)
    (entry,) = cache.iterdir()
    path, note = entry / "judge.safetensors", json.loads((entry / "judge.json").read_text())
    if where == "weights":
        path.write_bytes(
            save({key: w + value if w.is_floating_point() else w for key, w in load(path.read_bytes()).items()})
        )
        note["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    else:
        note["accuracy"] = value
    (entry / "judge.json").write_text(json.dumps(note))
    assert same(train_or_load(*small, None, cache=cache), trained)
    assert len(trainings) == 2


def test_classifier_that_diverges_is_not_cached(small, cache, trainings, monkeypatch):
    whole = judging.train_classifier

    def diverged(*arguments):
        net = whole(*arguments)
        next(net.parameters()).data.fill_(math.nan)
        return net

    monkeypatch.setattr(judging, "train_classifier", diverged)
    with pytest.raises(ConfigError, match="not finite"):
        train_or_load(*small, None, cache=cache)
    assert not cache.exists() or list(cache.iterdir()) == []


def test_reading_an_entry_makes_it_the_last_used(small, cache, trainings):
    train_or_load(*small, None, cache=cache)
    (entry,) = cache.iterdir()
    os.utime(entry, (1, 1))
    train_or_load(*small, None, cache=cache)
    assert entry.stat().st_mtime > 1


def test_unusable_cache_is_no_error(small, tmp_path, trainings):
    (tmp_path / "file").touch()
    train_or_load(*small, None, cache=tmp_path / "file" / "classifiers")
    (tmp_path / "link").symlink_to(tmp_path)
    assert train_or_load(*small, None, cache=tmp_path / "link").accuracy is not None
    assert trainings == [0, 0]


def test_runs_that_start_at_once_leave_a_sound_entry(small, cache, monkeypatch):
    """Threads stand for runs; they share torch's global generator, so one draws initial weights at a time."""
    monkeypatch.setattr(classifier, "STEPS", 1)
    trained = train_or_load(*small, None)
    results = []
    build, lock = classifier.build_classifier, threading.Lock()

    def build_alone(*arguments):
        with lock:
            return build(*arguments)

    for module in (classifier, judging):
        monkeypatch.setattr(module, "build_classifier", build_alone)

    def begin() -> None:
        results.extend(train_or_load(*small, None, cache=cache) for _ in range(5))

    threads = [threading.Thread(target=begin) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(results) == 20
    assert all(same(judge, trained) for judge in results)
    monkeypatch.setattr(judging, "train_classifier", None)  # which would be called for a damaged entry
    assert same(train_or_load(*small, None, cache=cache), trained)


DATA_OF_A_PROGRAM = '''"""Digits."""

from dataclasses import dataclass

from paragan.datasets import digits


@dataclass(frozen=True)
class Options:
    """No settings."""


def source(options, split):
    return digits.source(digits.Options(8), split)
'''


@pytest.mark.parametrize(("name", "num_trainings"), [("digits", 1), ("mydata.py", 2)])
def test_data_of_a_program_is_not_cached(tmp_path, cache, trainings, monkeypatch, name, num_trainings):
    """Its fingerprint is what the program says."""
    (tmp_path / "mydata.py").write_text(DATA_OF_A_PROGRAM)
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        train_judge("digits", tmp_path, f"data.name={name}")
    assert len(trainings) == num_trainings
    assert cache.exists() == (name == "digits")
