"""`paragan data prepare`: equal bytes, resuming after a kill, refusals, bounded memory."""

import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from paragan.cli.main import main
from paragan.core.errors import DataError
from paragan.datasets._options import FolderOptions, PixelOptions
from paragan.datasets._pixel_format import PixelFormat
from paragan.datasets.preparation import prepare
from paragan.datasets.preparation.prepare import prepare_shards
from paragan.storage.shard_folder import UNFINISHED, Encoding, ShardFolder
from paragan.storage.shard_writer import EncodedSample, ShardWriter
from tests.conftest import ROOT
from tests.data_refusals import refusal
from tests.prepared_shards import contents, image_folder, prepared

JPEG = Encoding(
    size=8, channels=3, crop="center", background=255, filter="lanczos", format="jpeg", quality=90, pillow="x"
)


@pytest.fixture
def images(tmp_path):
    return image_folder(tmp_path / "images")


@pytest.mark.parametrize("num_samples", [0, 4, 6])
def test_a_shard_of_another_number_of_samples_than_planned_is_not_written(tmp_path, images, num_samples):
    planned = prepared(images, tmp_path / "one").description
    writer = ShardWriter(tmp_path, planned)
    with pytest.raises(ValueError, match="zip"):
        writer.write(0, [EncodedSample(b"image", ".png", 0, 0)] * num_samples)
    assert writer.missing()[0] == 0 and not list(tmp_path.glob("*.tar"))


@pytest.mark.parametrize("encoding", [None, Encoding(size=8), JPEG], ids=["unchanged", "png", "jpeg"])
def test_preparing_a_copy_gives_equal_bytes(tmp_path, images, encoding):
    prepared(images, tmp_path / "one", encoding)
    shutil.copytree(images, tmp_path / "copy", copy_function=shutil.copyfile)  # with other times
    prepare_shards(str(tmp_path / "copy"), tmp_path / "two", encoding, 5, threads=1)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    assert set(contents(tmp_path / "one")) == {"dataset.json", "index.bin", *(f"shard-00000{i}.tar" for i in range(5))}


def test_resized_images_have_the_pixels_of_the_decoder(tmp_path, images):
    opened = prepared(images, tmp_path / "out", Encoding(size=8, channels=1, crop="squash", background=0))
    files = sorted(images.rglob("*.*"))
    for row, path in enumerate(files):
        image = Image.open(io.BytesIO(opened.read(row)))
        assert (image.format, image.mode) == ("PNG", "L")
        grey = PixelFormat(size=(8, 8), options=PixelOptions(channels=1, crop="squash", background=0))
        assert np.array_equal(np.asarray(image)[None], grey.decode(path.read_bytes(), ""))


def test_metadata_of_the_source_is_not_copied(tmp_path, images):
    path = images / "cats" / "00.png"
    Image.new("RGB", (9, 9)).save(path, icc_profile=b"profile" * 9)
    for encoding, is_there in ((None, True), (Encoding(size=8), False)):
        image = Image.open(io.BytesIO(prepared(images, tmp_path / str(is_there), encoding).read(0)))
        assert ("icc_profile" in image.info) is is_there


def test_a_stopped_preparation_continues_with_the_missing_shards(tmp_path, images, monkeypatch):
    expected = Path(prepared(images, tmp_path / "expected").address)
    out = tmp_path / "out"
    original = ShardWriter.write

    def fail(self, number, samples):
        if number >= 3:  # the next one may be under way
            raise OSError(28, "No space left on device")
        original(self, number, samples)

    monkeypatch.setattr(ShardWriter, "write", fail)
    with pytest.raises(OSError, match="No space"):
        prepare_shards(str(images), out, None, 5, threads=1)
    monkeypatch.setattr(ShardWriter, "write", original)
    before = {path.name: path.stat().st_mtime_ns for path in out.glob("*.tar")}
    assert sorted(before) == ["shard-000000.tar", "shard-000001.tar", "shard-000002.tar"]
    (out / "shard-000001.tar").write_bytes(b"cut")  # as after a power failure
    calls = []
    result = prepare_shards(str(images), out, None, 5, threads=1, progress=lambda *counts: calls.append(counts))
    assert result.num_written == 3
    assert calls == [(done, 13) for done in range(1, 14)]  # 5 + 5 + 3 samples
    assert contents(out) == contents(expected)
    kept = {path.name: path.stat().st_mtime_ns for path in out.glob("*.tar")}
    assert sorted(name for name in before if kept[name] == before[name]) == ["shard-000000.tar", "shard-000002.tar"]


@pytest.mark.slow
def test_a_killed_preparation_continues(tmp_path):
    """SIGKILL after two shards; the bytes are those of one go."""
    images = image_folder(tmp_path / "images", 60, 400)
    expected = Path(prepared(images, tmp_path / "expected", Encoding(size=256)).address)
    out = tmp_path / "out"
    words = ["data", "prepare", str(images), str(out), "--size=256", "--shard-samples=5", "--threads=2"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    finished = []
    process = subprocess.Popen([sys.executable, "-m", "paragan", *words], env=environment, stdout=subprocess.PIPE)
    deadline = time.monotonic() + 120
    while len(finished) < 2 and process.poll() is None and time.monotonic() < deadline:
        finished = sorted((out / UNFINISHED).glob("*.part"))
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL, "it ended before it was killed"
    assert 0 < len(finished) < 12
    result = prepare_shards(str(images), out, Encoding(size=256, pillow=prepare.PIL.__version__), 5, threads=2)
    assert 0 < result.num_written <= 12 - len(finished)
    names = {"index.bin", *(shard.name for shard in result.folder.description.shards)}
    there = contents(out)
    assert set(there) == {*names, "dataset.json"}  # and no temporary files
    assert {name: there[name] for name in names} == {name: contents(expected)[name] for name in names}


@pytest.mark.parametrize(
    ("is_finished", "change", "message"),
    [
        (True, "size", r"other settings \(size: null there, 8 now\)"),
        (False, "size", r"other settings \(size: null there, 8 now\)"),
        (True, "samples", r"other settings \(samples_per_shard: 5 there, 6 now\)"),
        (False, "samples", r"other settings \(samples_per_shard: 5 there, 6 now\)"),
        (True, "file", "another source"),
        (False, "folder", r"other settings \(num_samples: \d+ there, 3 now\)"),
    ],
)
def test_other_settings_or_sources_are_refused(tmp_path, images, monkeypatch, is_finished, change, message):
    out = tmp_path / "out"
    if not is_finished:
        monkeypatch.setattr(ShardWriter, "write", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            prepared(images, out)
    else:
        prepared(images, out)
    if change == "folder":
        images = image_folder(tmp_path / "other", count=3)
    if change == "file":
        (images / "cats" / "00.png").write_bytes((images / "cats" / "04.png").read_bytes() + b"0")
    encoding = Encoding(size=8) if change == "size" else None
    number = 6 if change == "samples" else 5
    with pytest.raises(DataError, match=rf"{out}: holds shards of {message}; pass another folder"):
        prepare_shards(str(images), out, encoding, number)


@pytest.mark.parametrize(
    "text", ["", "[]", "[" * 100_000, "{}", '{"encoding": 3}', '{"encoding": {"more": 1}}', "pipe"]
)
def test_unfinished_shards_whose_settings_are_damaged_are_refused(tmp_path, images, monkeypatch, text):
    out = tmp_path / "out"
    monkeypatch.setattr(ShardWriter, "write", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        prepared(images, out)
    settings = out / UNFINISHED / "settings.json"
    before = json.loads(settings.read_text())
    if text == "pipe":
        settings.unlink()
        os.mkfifo(settings)
    else:
        settings.write_text(json.dumps(before | json.loads(text)) if text.startswith('{"') else text)
    with pytest.raises(DataError, match=rf"{out}: .*(another folder)") as caught:
        prepared(images, out)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("change", ["removed", "added", "replaced"])
def test_a_preparation_that_stopped_at_a_damaged_image_begins_anew_where_images_have_changed(tmp_path, images, change):
    damaged = images / "dogs" / "05.png"
    whole = damaged.read_bytes()
    damaged.write_bytes(b"no image")
    with pytest.raises(DataError, match=r"dogs/05.png: not an image"):
        prepared(images, tmp_path / "out")
    assert list((tmp_path / "out").glob("shard-*.tar"))  # some were written
    if change == "removed":
        damaged.unlink()
    else:
        damaged.write_bytes(whole)
    if change == "added":
        (images / "cats" / "zz.png").write_bytes(whole)
    again = prepare_shards(str(images), tmp_path / "out", None, 5)
    assert again.num_written == len(again.folder.description.shards)
    prepared(images, tmp_path / "fresh")
    assert contents(tmp_path / "out") == contents(tmp_path / "fresh")


def test_a_folder_with_other_files_is_refused(tmp_path, images):
    message = refusal(lambda: prepared(images, images))
    assert message == f"{images}: the folder is not empty and holds no shards; pass a new folder"


def test_two_processes_cannot_prepare_one_folder(tmp_path, images, monkeypatch):
    out = tmp_path / "out"
    messages = []
    original = ShardWriter.write

    def write(self, number, samples):
        if not messages:
            messages.append(refusal(lambda: prepared(images, out)))
        original(self, number, samples)

    monkeypatch.setattr(ShardWriter, "write", write)
    prepare_shards(str(images), out, None, 50, threads=1)
    assert messages == [f"{out}: another process is preparing this folder; wait for it, or stop it"]


def test_a_damaged_image_stops_the_preparation_with_its_name(tmp_path, images):
    path = images / "dogs" / "11.jpg"
    path.write_bytes(b"no image")
    assert f"{path}: not an image in a supported format" in refusal(lambda: prepared(images, tmp_path / "one"))
    assert f"{path}: not an image in PNG" in refusal(lambda: prepared(images, tmp_path / "two", Encoding(size=8)))


def test_damaged_images_are_skipped(tmp_path, images, monkeypatch):
    monkeypatch.setenv("PARAGAN_CACHE", str(tmp_path / "cache"))
    path = images / "dogs" / "11.jpg"
    path.write_bytes(path.read_bytes()[:200])
    result = prepare_shards(str(images), tmp_path / "out", None, 5, options=FolderOptions(damaged="skip"))
    assert len(result.folder) == 22
    assert "1 of 23 samples is damaged and excluded" in result.notices[0]
    path.unlink()
    assert contents(Path(prepared(images, tmp_path / "clean").address)) == contents(tmp_path / "out")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--size=20*30"], "HEIGHTxWIDTH"),
        (["--format=jpeg"], "--format jpeg needs --size"),
        (["--size=8", "--format=jpeg", "--quality=0"], "--quality 0 is not supported"),
        (["data.range=[0,9]"], "data.range changes nothing that is stored"),
        (["--size=8", "data.flip=true"], "data.flip changes nothing that is stored"),
        (["--size=8", "data.channels=4"], "1 or 3 channels"),
        (["--size=8", "data.chanels=1"], "did you mean"),
        (["train.batch=8"], "train"),
    ],
)
def test_unsupported_options_are_refused(tmp_path, images, capsys, words, message):
    assert main(["data", "prepare", str(images), str(tmp_path / "out"), *words]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_command_describes_the_shards_and_how_to_train(tmp_path, images, capsys):
    out = tmp_path / "my shards"
    assert main(["data", "prepare", str(images), str(out), "--size=8", "--shard-samples=10"]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"my shards: 23 images of 8 px, 0\.\d MB\n  shards   3, 3 of them written now\n", printed)
    assert f"To train: paragan train own data.name=shards 'data.path={out}' data.size=null" in printed
    assert main(["data", "prepare", str(images), str(out), "--size=8", "--shard-samples=10"]) == 0
    assert "3, 0 of them written now" in capsys.readouterr().out
    assert main(["data", "check", str(out)]) == 0


MEASURE = """
import sys
from pathlib import Path
from paragan.datasets.preparation.prepare import prepare_shards
from paragan.storage.shard_folder import Encoding
def peak():
    return next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith("VmHWM"))
source, small, out, size = sys.argv[1:]
encoding = Encoding(size=int(size)) if int(size) else None
prepare_shards(small, Path(out + "-small"), encoding, threads=2)
before = peak()
prepare_shards(source, Path(out), encoding, 30, threads=2)
print(peak() - before)
"""
MIB = 1 << 20


@pytest.mark.parametrize("size", [0, pytest.param(8, marks=pytest.mark.slow)])
def test_memory_is_bounded_by_one_image_per_thread(tmp_path, size):
    """Two threads, 44 MiB of images in one shard each: a shard is never in memory."""
    small = image_folder(tmp_path / "small", 4)
    images = tmp_path / "images"
    images.mkdir()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (600, 850, 3), np.uint8)).save(images / "000.bmp")
    for number in range(1, 60):
        os.link(images / "000.bmp", images / f"{number:03d}.bmp")
    command = [sys.executable, "-c", MEASURE, str(images), str(small), str(tmp_path / "out"), str(size)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, env=environment)
    assert done.returncode == 0, done.stderr
    assert len(ShardFolder(tmp_path / "out")) == 60
    assert int(done.stdout) < 32 * MIB
