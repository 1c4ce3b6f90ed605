"""What once lost files, or trained as something else, without a word: read rightly, or refused in one line."""

from __future__ import annotations

import io
import os
import signal
import tarfile
import zipfile

import numpy as np
import pytest

from paragan import build
from paragan.cli.main import main
from paragan.config import read_recipe
from paragan.core.errors import StoppedError
from paragan.core.interrupt import install
from paragan.core.option_types import Choice
from paragan.datasets import _damaged_images, npz, paired
from paragan.datasets._value_summary import describe_range
from paragan.datasets.base.open_images import open_encoded_images
from paragan.datasets.preparation.dataset_check import check_dataset, guess_data_set
from tests.data_refusals import refusal
from tests.image_folders import add_member, fill, png, put


def tar_bytes(count=6, size=700):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for row in range(count):
            add_member(archive, f"{row}.png", png(row) + bytes(size))
    return stream.getvalue()


MEMBER = 512 + 1024  # header, and content of whole blocks


@pytest.mark.parametrize("end", [3 * MEMBER, 3 * MEMBER + 100, 3 * MEMBER + 512, 4 * MEMBER - 1, 6 * MEMBER])
@pytest.mark.parametrize("is_folder", [False, True])
def test_tar_file_cut_anywhere_is_refused(tmp_path, is_folder, end):
    (tmp_path / "0.tar").write_bytes(tar_bytes()[:end])
    (tmp_path / "1.tar").write_bytes(tar_bytes())
    message = refusal(lambda: open_encoded_images(str(tmp_path if is_folder else tmp_path / "0.tar")))
    assert "0.tar" in message and "again" in message


def test_tar_file_with_a_damaged_header_is_refused_and_one_zero_block_is_an_end(tmp_path):
    whole = tar_bytes()
    (tmp_path / "damaged.tar").write_bytes(whole[: 2 * MEMBER] + b"\xff" * 512 + whole[2 * MEMBER + 512 :])
    assert "damaged.tar" in refusal(lambda: open_encoded_images(str(tmp_path / "damaged.tar")))
    (tmp_path / "short.tar").write_bytes(whole[: 6 * MEMBER + 512])
    assert len(open_encoded_images(str(tmp_path / "short.tar"))) == 6


def halves(root, count, others=()):
    for row in range(count):
        put(root / f"{row}.png", size=(16, 8), seed=row)
    for number, size in enumerate(others):
        put(root / f"odd{number}.png", size=size, seed=99)
    return str(root)


@pytest.mark.parametrize("names", [("images/{}.png", "masks/{}.png"), ("{}_C.png", "{}_D.png"), ("{}.png", "x{}.png")])
def test_check_refuses_squares_as_pairs_as_training_does(tmp_path, capsys, names):
    for row in range(6):
        for side in (0, 1):
            put(tmp_path / "set" / names[side].format(row), size=(8, 8), seed=2 * row + side)
    assert main(["data", "check", str(tmp_path / "set"), "data.name=paired"]) == 2
    line = capsys.readouterr().err.strip()
    assert "not a pair" in line
    assert refusal(lambda: paired.source(paired.Options(path=str(tmp_path / "set")), "train")) == line


@pytest.mark.parametrize("size", [(8, 8), (13, 8), (15, 8), (8, 16)])
def test_check_names_the_pictures_that_training_on_pairs_would_refuse(tmp_path, size):
    root = halves(tmp_path, 20, [size])
    report = check_dataset(root)
    assert report.not_halves == ["odd0.png"] and any("'odd0.png'" in line for line in report.advice)
    assert "train pix2pix-facades" in report.command and "data.damaged=skip" in report.command
    report = check_dataset(root, data=Choice("paired", paired.Options(path=root)))
    assert len(report.damaged) == 1 and "odd0.png" in report.damaged[0] and "data.damaged=skip" in report.command
    splits = [paired.source(paired.Options(path=root, damaged="skip"), split) for split in ("train", "held_out")]
    assert sum(map(len, splits)) == 20


@pytest.mark.parametrize("folders", [("a", "b"), ("train/a", "train/b"), ("x/a", "x/b")])
@pytest.mark.parametrize("num_more", [0, 2])
def test_classes_called_a_and_b_are_classes_in_check_and_training(tmp_path, folders, num_more):
    for number, name in enumerate(folders):
        for row in range(6 + number * num_more):
            put(tmp_path / name / f"{row}.png", seed=10 * number + row)
    report = check_dataset(str(tmp_path))
    images = open_encoded_images(str(tmp_path))
    assert tuple(report.classes) == images.class_names == ("a", "b")
    assert any("data.name=paired" in line for line in report.warnings) and report.warnings == images.notices


@pytest.mark.parametrize(
    ("layout", "kind"),
    [
        (["A/{}.png 6", "B/{}.png 6"], "paired"),
        (["A/{}.png 6", "B/{}.png 4"], "paired"),
        (["A/{}.png 6", "B/x{}.png 4"], "unpaired"),
        (["A/train/{}.png 6", "B/train/{}.png 6", "A/test/{}.png 2", "B/test/{}.png 2"], "paired"),
        (["low/{}.png 6", "high/{}.png 5"], "paired"),
        (["our1/low/{}.png 6", "our1/high/{}.png 6", "eval2/low/{}.png 2", "eval2/high/{}.png 2"], "paired"),
    ],
)
def test_what_check_reads_as_pairs_is_no_class_in_training_until_a_setting_says_so(tmp_path, layout, kind):
    for number, text in enumerate(layout):
        name, count = text.split()
        for row in range(int(count)):
            put(tmp_path / name.format(row), seed=100 * number + row)
    path = str(tmp_path)
    assert guess_data_set(path) == kind
    message = refusal(lambda: open_encoded_images(path))
    assert "data.name=paired" in message and "data.classes=folders" in message
    assert any("data.classes=folders" in line for line in check_dataset(path).advice)
    assert guess_data_set(path, ["data.classes=folders"]) == "folder"
    assert len(open_encoded_images(path, classes="folders").class_names) == 2


@pytest.mark.parametrize("other", ["eval15", "test", "Testing"])
def test_pairs_of_an_evaluation_folder_are_held_out(tmp_path, other):
    for number, name in enumerate(("our485", other)):
        for row in range(4 + number):
            for side in ("low", "high"):
                put(tmp_path / name / side / f"{row}.png", seed=10 * number + row)
    splits = [paired.source(paired.Options(path=str(tmp_path), size=8), split) for split in ("train", "held_out")]
    assert [len(split) for split in splits] == [4, 5]
    assert "holds out 5" in splits[0].reading and "not read" not in splits[0].reading


@pytest.mark.parametrize("names", [("trainA/{}_A.png", "trainB/{}_B.png"), ("low/{}-low.png", "high/{}-high.png")])
def test_names_that_end_in_their_side_are_pairs(tmp_path, names):
    for row in range(4):
        for side in (0, 1):
            put(tmp_path / names[side].format(row), seed=10 * row + side)
    report = check_dataset(str(tmp_path))
    assert report.images == 4 and report.recipe == "pix2pix-facades" and not report.damaged


@pytest.mark.parametrize(
    ("layout", "classes", "train", "held_out", "ignored"),
    [
        (["train_0001.png 1", "train_0002.png 1", "train_3.png 1", "test_0001.png 1"], (), 3, 1, {}),
        (["a/train-1.png 1", "a/val-1.png 1", "b/train-1.png 1", "b/train-2.png 1"], ("a", "b"), 3, 1, {}),
        (
            ["Train1.png 1", "Train2.png 1", "val1.png 1", "test1.png 1"], (), 2, 1, {"images of other splits": 1},
        ),
    ],
)  # fmt: skip
def test_files_named_after_splits_are_the_splits(tmp_path, layout, classes, train, held_out, ignored):
    images = open_encoded_images(str(fill(tmp_path, *layout)))
    assert [len(images.rows(split, 0.1)) for split in ("train", "held_out")] == [train, held_out]
    assert images.class_names == classes and images.ignored == ignored
    assert all("train" in images.name(row).lower() for row in images.rows("train", 0.1))


@pytest.mark.parametrize("names", [["train_1.png", "x.png", "test_1.png"], ["train_1.png", "train_2.png"]])
def test_files_of_which_some_are_named_after_no_split_are_split_by_share(tmp_path, names):
    assert open_encoded_images(str(fill(tmp_path, *(f"{name} 1" for name in names)))).num_train is None


def test_folders_in_class_folders_are_said(tmp_path):
    layout = ["animals/cats/ 3", "animals/dogs/ 3", "plants/oak/ 3", "plants/fern/ 3"]
    images = open_encoded_images(str(fill(tmp_path, *layout)))
    assert images.class_names == ("animals", "plants")
    (line,) = images.notices
    assert "'animals', 'plants'" in line
    assert not open_encoded_images(str(tmp_path), classes="folders").notices


@pytest.mark.parametrize("parts", ["train test", "train val"])
def test_folds_of_splits_name_the_folder_to_pass(tmp_path, parts):
    layout = [f"fold{n}/{part}/{name}/ 2" for n in (1, 2) for part in parts.split() for name in ("cats", "dogs")]
    message = refusal(lambda: open_encoded_images(str(fill(tmp_path, *layout))))
    assert "'fold1', 'fold2'" in message.partition("pass the folder of one of")[2]
    assert "data.classes=folders makes 'fold1', 'fold2' classes" in message
    assert open_encoded_images(str(tmp_path / "fold1")).class_names == ("cats", "dogs")


def test_folder_of_img2dataset_reads_its_tar_files_and_says_the_rest(tmp_path):
    for number in range(2):
        with tarfile.open(tmp_path / f"0000{number}.tar", "w") as archive:
            for row in range(3):
                add_member(archive, f"{row}.jpg", png(row))
                add_member(archive, f"{row}.txt", b"a caption")
        (tmp_path / f"0000{number}.parquet").write_bytes(b"PAR1 of addresses")
    (tmp_path / "00000_stats.json").write_text("{}")
    images = open_encoded_images(str(tmp_path))
    assert len(images) == 6 and images.ignored == {".txt": 6, ".parquet": 2, ".json": 1}


def test_several_archives_are_named_and_one_is_passed(tmp_path):
    for name in ("train", "test1"):
        with zipfile.ZipFile(tmp_path / f"{name}.zip", "w") as archive:
            archive.writestr("1.png", png())
    message = refusal(lambda: open_encoded_images(str(tmp_path)))
    assert "unpack" in message and "train.zip" in message and "data.path=" not in message
    (tmp_path / "test1.zip").rename(tmp_path / "x.nii.gz")  # no archive
    assert f"data.path={tmp_path / 'train.zip'}" in refusal(lambda: open_encoded_images(str(tmp_path)))


def test_encrypted_zip_file_is_refused_in_one_line(tmp_path):
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for row in range(3):
            archive.writestr(f"{row}.png", png(row))
    content = bytearray(path.read_bytes())
    for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        place = content.find(mark)
        content[place + offset] |= 1
    path.write_bytes(content)
    message = refusal(lambda: open_encoded_images(str(path)))
    assert "encrypted" in message and "password" in message


@pytest.mark.parametrize("name", ["@eaDir", "#recycle", "$RECYCLE.BIN"])
def test_folders_of_storage_systems_are_no_classes(tmp_path, name):
    images = open_encoded_images(str(fill(tmp_path, "cats/ 3", "dogs/ 3", f"{name}/ 3")))
    assert images.class_names == ("cats", "dogs") and len(images) == 6


def test_table_of_labels_next_to_the_images_is_named_with_its_setting(tmp_path):
    fill(tmp_path, "images/ 4", "sample.csv 1", "train.csv 1")
    (notice,) = open_encoded_images(str(tmp_path)).notices
    fix = f"data.labels={tmp_path / 'train.csv'}"
    assert fix in notice
    assert fix in refusal(lambda: open_encoded_images(str(tmp_path), labels="train.csv"))


IMAGES = np.random.default_rng(0).integers(0, 256, (20, 8, 8, 3), np.uint8)
LABELS = np.arange(20) % 2


@pytest.mark.parametrize(
    ("names", "found"),
    [
        ("x_test y_test x_train y_train", ("x_train", "y_train")),
        ("train_images val_images train_labels val_labels", ("train_images", "train_labels")),
        ("X y", ("X", "y")),
        ("pictures", ("NAME", "NAME")),
    ],
)
def test_arrays_of_other_names_are_refused_with_the_way_and_the_rest_is_said(tmp_path, names, found):
    path = tmp_path / "x.npz"
    np.savez(path, **{name: LABELS if name[0] == "y" or "label" in name else IMAGES for name in names.split()})
    message = refusal(lambda: npz.source(npz.Options(path=str(path)), "train"))
    assert f"data.image_array={found[0]} data.label_array={found[1]}" in message
    if "NAME" not in found:
        data = npz.source(npz.Options(path=str(path), image_array=found[0], label_array=found[1]), "train")
        assert data.reading == "holds out 2" and len(data) == 18
        unread = [name for name in names.split() if name not in found]
        assert [all(name in notice for name in unread) for notice in data.notices] == [True] * bool(unread)


@pytest.mark.parametrize("name", ["x.mat", "x.pkl", "x.h5"])
def test_file_of_another_format_is_not_called_damaged(tmp_path, name):
    (tmp_path / name).write_bytes(b"MATLAB 5.0 MAT-file")
    message = refusal(lambda: npz.source(npz.Options(path=str(tmp_path / name)), "train"))
    assert "npz" in message and "damaged" not in message


@pytest.mark.parametrize(
    ("high", "top", "is_said"),
    [(9999, 65535, True), (16000, 65535, True), (16384, 65535, False), (31, 255, True), (60, 255, False)],
)
def test_range_of_16_bits_that_is_hardly_used_is_said(high, top, is_said):
    assert bool(describe_range(0, high, top)) == is_said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_while_damaged_files_are_looked_for_ends_the_run_at_once(tmp_path, monkeypatch, number):
    fill(tmp_path / "set", ". 6")
    decoded = []

    def decode_all(images, decode):
        for row in range(len(images)):
            decoded.append(row)
            if row == 1:
                os.kill(os.getpid(), number)
        return set()

    monkeypatch.setattr(_damaged_images, "_decode_all", decode_all)
    monkeypatch.setenv("PARAGAN_CACHE", str(tmp_path / "cache"))
    config = read_recipe("own", [f"data.path={tmp_path / 'set'}", "data.damaged=skip", "data.size=8"])
    with install(message="") as interrupt:
        with pytest.raises(StoppedError) as raised:
            build.open_data(config)
        assert raised.value.exit_code == 85 and decoded == [0, 1]
        os.kill(os.getpid(), signal.SIGTERM)
        assert interrupt.requested  # handlers are as before
