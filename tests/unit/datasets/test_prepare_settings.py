"""`paragan data prepare` with settings of training, and after an edit of its source."""

import io
import os
import shutil
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from paragan.cli.main import main
from paragan.config import read_data_settings
from paragan.core.errors import DataError
from paragan.datasets import folder, shards
from paragan.storage.shard_folder import ShardFolder
from paragan.storage.shard_writer import ShardWriter
from tests.prepared_shards import image_folder, prepared


@pytest.fixture
def images(tmp_path):
    return image_folder(tmp_path / "images")


@pytest.mark.parametrize(
    "words", [["data.labels=labels.csv"], ["data.classes=none"], ["data.damaged=skip"], []], ids=str
)
def test_prepare_reads_as_training_does_with_equal_settings(tmp_path, images, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    files = sorted(path.name for path in images.rglob("*.*"))
    Path("labels.csv").write_text("file_name,label\n" + "".join(f"{n},{'xyz'[i % 3]}\n" for i, n in enumerate(files)))
    assert main(["data", "prepare", str(images), "out", *words]) == 0
    stored = shards.source(shards.Options(path="out", size=8), "train")
    options = read_data_settings("folder", str(images), [*words, "data.size=8"]).options
    expected = folder.source(options, "train")
    assert stored.class_names == expected.class_names and stored.class_sizes() == expected.class_sizes()


@pytest.mark.parametrize(("words", "limits"), [(["data.range=[0,4095]"], (0, 4095)), (["data.channels=1"], (0, 65535))])
def test_prepare_maps_values_as_training_does(tmp_path, capsys, words, limits):
    values = np.random.default_rng(0).integers(0, 4096, (4, 8, 8)).astype(np.uint16)
    (tmp_path / "deep").mkdir()
    for number, pixels in enumerate(values):
        Image.fromarray(pixels).save(tmp_path / "deep" / f"{number}.png")
    assert main(["data", "prepare", str(tmp_path / "deep"), str(tmp_path / "out"), "--size=8", *words]) == 0
    printed = capsys.readouterr().out
    assert ("data.range=[" in printed) == (limits[1] == 65535)  # nearly black, and said
    assert ("data.channels=1" in printed) == (words == ["data.channels=1"])
    image = np.asarray(Image.open(io.BytesIO(ShardFolder(tmp_path / "out").read(2))))
    assert np.abs(np.atleast_3d(image)[..., 0] - values[2] / limits[1] * 255).max() <= 0.51


@pytest.mark.parametrize("source", ["folder", "tar", "zip"])
@pytest.mark.parametrize("is_finished", [True, False])
def test_an_image_that_is_edited_without_another_size_is_prepared_again(tmp_path, monkeypatch, source, is_finished):
    def store(colour):
        for number in range(6):
            path = tmp_path / "images" / f"{number}.ppm"
            path.parent.mkdir(exist_ok=True)
            Image.new("RGB", (8, 8), colour if number == 2 else number).save(path)
        path = tmp_path / "images"
        path = path if source == "folder" else Path(shutil.make_archive(str(path), source, path))
        newest = path / "2.ppm" if source == "folder" else path
        os.utime(newest, ns=(0, newest.stat().st_mtime_ns + 10**9 * (colour == "white")))
        return path

    path = store("black")
    with monkeypatch.context() as patch:
        if not is_finished:
            patch.setattr(ShardWriter, "finish", lambda *_: 1 / 0)
        with nullcontext() if is_finished else pytest.raises(ZeroDivisionError):
            prepared(path, tmp_path / "out")
    store("white")
    if is_finished:
        with pytest.raises(DataError, match="another source" if source == "zip" else "have changed since"):
            prepared(path, tmp_path / "out")
    else:
        again = prepared(path, tmp_path / "out")
        assert Image.open(io.BytesIO(again.read(2))).getpixel((0, 0)) == (255, 255, 255)
