"""Data set `shards`: the same batches as from the folder, random access, and damage named with shard and sample."""

import json
import tarfile

import numpy as np
import pytest
import torch
from PIL import Image

from paragan.datasets import folder, shards
from paragan.datasets.preparation.dataset_check import check_dataset
from paragan.storage.shard_folder import Encoding, ShardFolder
from tests.data_refusals import refusal
from tests.prepared_shards import flip_bit, image_folder, prepared

SPLITS = ("train", "held_out")


@pytest.fixture
def images(tmp_path):
    return image_folder(tmp_path / "images")


@pytest.fixture
def out(tmp_path, images):
    prepared(images, tmp_path / "out")
    return tmp_path / "out"


def both(images, out, **options):
    """The two splits of a folder and of shards."""
    for split in SPLITS:
        yield (
            folder.source(folder.Options(path=str(images), **options), split),
            shards.source(shards.Options(path=str(out), **options), split),
        )


def assert_equal(source, expected):
    assert (len(source), source.shape, source.class_names) == (len(expected), expected.shape, expected.class_names)
    rows = np.arange(len(source))
    samples, expected_samples = source.fetch(rows), expected.fetch(rows)
    assert samples.keys() == expected_samples.keys()
    assert all(map(torch.equal, samples.values(), expected_samples.values()))


@pytest.mark.parametrize("options", [{"size": 8}, {"size": 16, "crop": "squash", "channels": 1, "held_out": 0.3}])
def test_shards_give_the_batches_of_the_folder(images, out, options):
    for of_folder, of_shards in both(images, out, **options):
        assert_equal(of_shards, of_folder)


def test_shards_have_the_split_folders_of_the_source(tmp_path):
    images = image_folder(tmp_path / "images", 7, tops=("train", "val"))
    prepared(images, tmp_path / "out")
    for of_folder, of_shards in both(images, tmp_path / "out", size=8):
        assert_equal(of_shards, of_folder)
    assert ShardFolder(tmp_path / "out").description.num_train == 7


def test_resized_shards_give_the_batches_of_the_folder(tmp_path, images):
    prepared(images, tmp_path / "small", Encoding(size=16, crop="squash"))
    for split in SPLITS:
        of_folder = folder.source(folder.Options(path=str(images), size=16, crop="squash"), split)
        of_shards = shards.source(shards.Options(path=str(tmp_path / "small")), split)
        assert_equal(of_shards, of_folder)
        assert of_shards.notices == ()


def test_another_size_than_that_of_the_shards_is_a_warning(tmp_path, images):
    prepared(images, tmp_path / "small", Encoding(size=16, channels=1))
    (size, channels) = shards.source(shards.Options(path=str(tmp_path / "small"), size=8), "train").notices
    assert size.startswith("data.size=8: images of 16 px are resized a second time; data.size=16 uses them unchanged")
    assert channels == "data.channels=3: the shards hold grey images; pass data.channels=1"


@pytest.mark.parametrize("values", [np.full((9, 9, 3), 7, np.uint8), np.full((9, 9), 300, np.uint16)])
@pytest.mark.parametrize("encoding", [None, Encoding(size=8)])
def test_a_warning_about_values_is_said_once(tmp_path, values, encoding):
    (tmp_path / "images").mkdir()
    for number in range(4):
        Image.fromarray(values + number * (257 if values.ndim == 2 else 1)).save(tmp_path / "images" / f"{number}.png")
    prepared(tmp_path / "images", tmp_path / "out", encoding)
    train, held_out = (shards.source(shards.Options(path=str(tmp_path / "out")), split).notices for split in SPLITS)
    assert len(train) == 1 and "data.range=[" in train[0] and held_out == ()


def test_random_access_gives_the_bytes_of_the_source(images, out):
    opened = ShardFolder(out)
    files = sorted(path for path in images.rglob("*.*"))
    for row in np.random.default_rng(0).permutation(len(opened)):
        assert opened.read(row) == files[row].read_bytes()


def test_index_locates_what_tar_files_hold(out):
    opened = ShardFolder(out)
    row = 0
    for shard in opened.description.shards:
        with tarfile.open(out / shard.name) as archive:
            members = archive.getmembers()
        assert [member.name for member in members[1::2]] == [f"{row + i:09d}.cls" for i in range(len(members) // 2)]
        for member in members[::2]:
            assert opened.locate(row) == (shard, member.offset_data, member.size)
            assert member.name.partition(".")[0] == f"{row:09d}"
            row += 1
    assert row == len(opened) == 23


@pytest.mark.parametrize("row", [0, 13, 22])
def test_a_flipped_bit_is_named_with_shard_and_sample(out, row):
    opened = ShardFolder(out)
    shard, offset, num_bytes = opened.locate(row)
    flip_bit(out / shard.name, offset + num_bytes // 2)
    message = f"{out}/shard-{row // 5:06d}.tar: sample {row:09d}: the bytes differ from the sha256 in the index"
    assert refusal(lambda: opened.read(row)).startswith(message)
    assert opened.read((row + 1) % 23)
    sources = [shards.source(shards.Options(path=str(out)), split) for split in SPLITS]
    messages = [refusal(lambda s=s: s.fetch(np.arange(len(s)))) for s in sources if row in s._rows]
    assert messages[0].startswith(message)
    report = check_dataset(str(out))
    assert len(report.damaged) == 1
    assert report.damaged[0].startswith(message)


def test_a_cut_shard_is_named(out):
    shard = out / "shard-000004.tar"
    shard.write_bytes(shard.read_bytes()[:700])
    assert f"{shard}: sample 000000020: the shard is cut" in refusal(lambda: ShardFolder(out).read(20))
    shard.unlink()
    assert f"{shard}: no such file" in refusal(lambda: ShardFolder(out).read(20))


@pytest.mark.parametrize(("name", "offset"), [("shard-000002.tar", 3), ("index.bin", 8)])
def test_check_names_files_that_are_damaged_outside_of_images(out, name, offset):
    flip_bit(out / name, offset)
    assert check_dataset(str(out)).damaged == [f"{out / name}: size or sha256 differs from dataset.json"]


def test_check_of_intact_shards_ends_with_the_command_to_train(out):
    report = check_dataset(str(out))
    assert (report.images, report.damaged, report.classes) == (23, [], {"cats": 12, "dogs": 11})
    assert report.command == f"paragan train own data.name=shards data.path={out} data.size=12"


def test_a_record_that_points_outside_of_its_shard_is_refused(out):
    index = out / "index.bin"
    data = bytearray(index.read_bytes())
    data[0:4] = b"\xff\xff\xff\x7f"
    data[52:56] = b"\xff\xff\xff\xff"
    index.write_bytes(data)
    opened = ShardFolder(out)
    for row in (0, 1):
        assert f"sample {row:09d}: index.bin is damaged" in refusal(lambda row=row: opened.read(row))


def test_labels_outside_of_the_classes_are_refused(out):
    data = bytearray((out / "index.bin").read_bytes())
    data[8] = 7
    (out / "index.bin").write_bytes(data)
    assert "labels range from 0 to 7 for 2 classes" in refusal(
        lambda: shards.source(shards.Options(path=str(out)), "train")
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "version 2 of the format; this program reads version 1"),
        ({"num_samples": 24}, "index.bin: 1,104 bytes, expected 1,152 for 24 samples"),
        ({"num_train": 23}, "the numbers in it do not fit each other"),
        ({"num_samples": "many"}, "dataset.json: num_samples: Input should be a valid integer"),
        (
            {"index": {"name": "../index.bin", "num_bytes": 1104, "sha256": "0"}},
            "dataset.json: index: name '../index.bin' is not the plain name of a file",
        ),
    ],
)
def test_an_invalid_description_is_refused(out, change, message):
    path = out / "dataset.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    assert message in refusal(lambda: ShardFolder(out))


def test_missing_shards_are_refused(tmp_path, images):
    assert refusal(lambda: shards.source(shards.Options(), "train")).startswith("data.path is required for dataset")
    options = shards.Options(path=str(images))
    assert f"{images}: no dataset.json; make shards with `paragan data prepare" in refusal(
        lambda: shards.source(options, "train")
    )
    (images / ".prepare").mkdir()
    assert "the preparation of the shards was stopped" in refusal(lambda: shards.source(options, "train"))
