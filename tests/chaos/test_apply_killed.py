"""`paragan apply` killed in the middle, and repeated: no file is damaged or missing, none is left over."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from PIL import Image

import paragan as pg
from tests.unit.export.image_runs import RUNS, noise

pytestmark = pytest.mark.slow
NUM_FILES = 24
TIMEOUT_S = 120


def apply_process(run, inputs, out):
    words = ["apply", str(run), str(inputs), "--out", str(out)]
    return subprocess.Popen(
        [sys.executable, "-m", "paragan", *words], stderr=subprocess.DEVNULL, stdout=subprocess.PIPE
    )


def finish(run, inputs, out):
    process = apply_process(run, inputs, out)
    process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0


def kill_after(process, out, num_files):
    end = time.monotonic() + TIMEOUT_S
    while len(list(out.glob("*.*"))) <= num_files + 1 and process.poll() is None:  # two are records
        assert time.monotonic() < end
        time.sleep(0.002)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == -signal.SIGKILL


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def image_run(tmp_path_factory):
    root = tmp_path_factory.mktemp("killed")
    (root / "photos").mkdir()
    for number in range(NUM_FILES):
        noise(150, 100, number).save(root / "photos" / f"{number}.png")
    words = {**RUNS["superres"][1], "data.path": str(root / "photos"), "data.size": 32, "data.crop": "random"}
    pg.train("superres", {**words, "train.batch": 2, "train.kimg": 0.002, "writers": ["jsonl"]}, out=root / "run")
    return root / "run", root / "photos"


@pytest.fixture(scope="module")
def audio_run(tmp_path_factory):
    soundfile = pytest.importorskip("soundfile")
    root = tmp_path_factory.mktemp("killed")
    (root / "sounds").mkdir()
    for number in range(NUM_FILES):
        x = np.random.default_rng(number).uniform(-0.5, 0.5, (6000, 2))
        soundfile.write(root / "sounds" / f"{number}.wav", x, 8000)
    words = {"model.width": 4, "model.windows": [256], "data.utterances": 4, "data.segment": 512}
    pg.train("codec", {**words, "train.batch": 2, "train.kimg": 0.002, "writers": ["jsonl"]}, out=root / "run")
    return root / "run", root / "sounds"


@pytest.mark.parametrize("kind", ["image", "audio"])
@pytest.mark.parametrize("stops", [(1,), (3, 9, 15)])
def test_killed_command_ends_as_an_unbroken_one(request, tmp_path, kind, stops):
    run, inputs = request.getfixturevalue(f"{kind}_run")
    finish(run, inputs, tmp_path / "whole")
    expected = contents(tmp_path / "whole")
    assert len(expected) == NUM_FILES + 2  # and two records
    for stop in stops:
        kill_after(apply_process(run, inputs, tmp_path / "parts"), tmp_path / "parts", stop)
        finished = {name: content for name, content in contents(tmp_path / "parts").items() if name in expected}
        assert expected["inputs.jsonl"].startswith(finished.pop("inputs.jsonl", b""))
        assert finished.items() <= expected.items()
    finish(run, inputs, tmp_path / "parts")
    assert contents(tmp_path / "parts") == expected


def test_photo_of_twelve_megapixels_is_applied_in_tiles(image_run, tmp_path, monkeypatch):
    """Enlarged to 192 megapixels: 2.3 GB in float32, of which there are at most two copies, and their bytes."""
    run, _ = image_run
    noise(1000, 750).resize((4000, 3000)).save(tmp_path / "photo.jpg")
    process = apply_process(run, tmp_path / "photo.jpg", tmp_path / "out")
    _, status, usage = os.wait4(process.pid, 0)
    process.stdout.close()
    process.returncode = status
    assert status == 0
    assert usage.ru_maxrss < 6.5e6  # KB
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    with Image.open(tmp_path / "out" / "photo.png") as image:
        assert image.size == (16000, 12000)
        enlarged = np.asarray(image.crop((4 * 1900, 4 * 1400, 4 * 2100, 4 * 1600)), np.float32)  # over two seams
    with Image.open(tmp_path / "photo.jpg") as image:
        context = np.asarray(image.crop((1800, 1300, 2200, 1700)), np.float32)
    low = torch.from_numpy(context).permute(2, 0, 1)[None] / 127.5 - 1
    with torch.no_grad():
        expected = pg.load(run).net(low=low)[0, :, 400:1200, 400:1200].permute(1, 2, 0)
    assert np.abs(enlarged - (expected.numpy().clip(-1, 1) + 1) * 127.5).max() <= 1.0  # one step of 255
