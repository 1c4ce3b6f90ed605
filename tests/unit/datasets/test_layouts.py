"""Folders as people have them, and what each is: the training and held-out images, classes, and what is not read."""

from __future__ import annotations

import inspect
import os
import sys
import tarfile
import zipfile

import pytest

from paragan.cli.data import format_shards
from paragan.datasets import folder
from paragan.datasets._image_paths import find_files
from paragan.datasets.base.open_images import open_encoded_images
from paragan.datasets.preparation.prepare import prepare_shards
from tests.data_refusals import refusal
from tests.image_folders import fill, png


def splits(images, held_out=0.2):
    rows = [images.rows(split, held_out).tolist() for split in ("train", "held_out")]
    return [{images.name(row) for row in part} for part in rows]


LAYOUTS = {  # what is there: (training images or None for a share, held-out images, classes, not read)
    "flat": ([". 10"], 8, 2, (), {}),
    "classes": (["cats/ 5", "dogs/ 5"], 8, 2, ("cats", "dogs"), {}),
    "kaggle": (["Train/cats/ 5", "Train/dogs/ 5", "Test/cats/ 2", "Test/dogs/ 2"], 10, 4, ("cats", "dogs"), {}),
    "brain-mri": (["Training/a/ 4", "Training/b/ 4", "Testing/a/ 3", "Testing/b/ 3"], 8, 6, ("a", "b"), {}),
    "three": (["train/ 6", "val/ 3", "test/ 4"], 6, 3, (), {"images in test/": 4}),
    "valid-test": (["TRAIN/a/ 3", "TRAIN/b/ 3", "valid/a/ 2", "test/b/ 2"], 6, 2, ("a", "b"), {"images in test/": 2}),
    "validation": (["train_set/ 6", "validation_set/ 2"], 6, 2, (), {}),
    "held-out": (["train/a/ 3", "train/b/ 3", "held_out/b/ 2", "other/ 1"], 6, 2, ("a", "b"), {"images in other/": 1}),
    "coco": (["train2017/ 6", "val2017/ 2", "annotations/x.json 1"], 6, 2, (), {".json": 1}),
    "dogs-vs-cats": (["train/ 6", "test1/ 2"], 6, 2, (), {}),
    "stl": (["train/ 6", "test/ 2", "unlabeled/ 9"], 6, 2, (), {"images in unlabeled/": 9}),
    "splits-in-classes": (["a/train/ 3", "a/test/ 2", "b/train/ 3", "b/test/ 2"], 6, 4, ("a", "b"), {}),
    "test-beside-classes": (["a/ 5", "b/ 5", "test/ 3"], 8, 2, ("a", "b"), {"images in test/": 3}),
    "test-beside-images": ([". 10", "test/ 3"], 8, 2, (), {"images in test/": 3}),
    "ffhq": (["images1024/00000/ 5", "images1024/01000/ 5"], 8, 2, (), {}),
    "stylegan": (["00000/ 5", "00001/ 5"], 8, 2, (), {}),
    "digits": (["0/ 5", "1/ 5"], 8, 2, ("0", "1"), {}),
    "celeba-mask": (
        ["CelebA-HQ-img/ 10", "CelebAMask-HQ-mask-anno/0/ 3", "CelebAMask-HQ-mask-anno/1/ 3"], 8, 2, (),
        {"images in CelebAMask-HQ-mask-anno/": 6},
    ),
    "annos": (["img/ 10", "Annos/ 9"], 8, 2, (), {"images in Annos/": 9}),
    "folds": (["fold_1/ 5", "fold_2/ 5"], 8, 2, (), {}),
    "parts-of-classes": (["a/part1/ 3", "a/part2/ 3", "b/Part1/ 3", "b/Part2/ 1"], 8, 2, ("a", "b"), {}),
    "segmentations": (["1.png 1", "1_Segmentation.png 1", "2.jpg 1", "2-superpixels_0.png 1"], 1, 1, (), {"masks": 2}),
    "masks": (["images/ 10", "masks/ 10"], 8, 2, (), {"images in masks/": 10}),
    "masks-in-splits": (
        ["train/image/ 6", "train/label/ 6", "val/image/ 2", "val/label/ 2"], 6, 2, (),
        {"images in train/label/": 6, "images in val/label/": 2},
    ),
    "classes-of-images": (
        ["images/a/ 5", "images/b/ 5", "masks/a/ 5", "masks/b/ 5"], 8, 2, ("a", "b"), {"images in masks/": 10},
    ),
    "kaggle-unlabelled": (["train/a/ 5", "train/b/ 5", "test/ 4"], 8, 2, ("a", "b"), {"images in test/": 4}),
    "train-in-train": (["train/train/ 6", "test1/test1/ 2"], 6, 2, (), {}),
    "intel": (
        ["seg_train/seg_train/a/ 4", "seg_train/seg_train/b/ 4", "seg_test/seg_test/a/ 2", "seg_pred/seg_pred/ 3"],
        8, 2, ("a", "b"), {"images in seg_pred/": 3},
    ),
    "masks-by-name": (
        ["a/1.png 1", "a/1_mask.png 1", "a/2.png 1", "b/3.png 1", "b/3_mask_1.png 1", "b/maskless.png 1"],
        3, 1, ("a", "b"), {"masks": 2},
    ),
    "voc": (["JPEGImages/ 10", "SegmentationClass/ 4"], 8, 2, (), {"images in SegmentationClass/": 4}),
    "vehicles": (["bus/ 5", "car/ 5", "train/ 5"], 12, 3, ("bus", "car", "train"), {}),
    "nnunet": (
        ["imagesTr/ 6", "imagesTs/ 2", "labelsTr/ 6", "labelsTs/ 2"], 6, 2, (),
        {"images in labelsTr/": 6, "images in labelsTs/": 2},
    ),
    "market": (
        ["bounding_box_train/ 6", "bounding_box_test/ 2", "query/ 3"], 6, 2, (), {"images in query/": 3},
    ),
    "div2k": (["DIV2K_train_HR/ 6", "DIV2K_valid_HR/ 2"], 6, 2, (), {}),
    "spaces": (["Training Data/a/ 3", "Training Data/b/ 3", "Testing Data/a/ 2"], 6, 2, ("a", "b"), {}),
    "dev": (
        ["a/train/ 3", "a/dev/ 1", "a/test/ 2", "b/train/ 3", "b/dev/ 1"], 6, 2, ("a", "b"), {"images in a/test/": 2},
    ),
    "trn": (["trn_512/ 6", "holdout_512/ 2"], 6, 2, (), {}),
    "evaluation": (["x-training/ 6", "x-evaluation/ 2", "xTest/ 3"], 6, 2, (), {"images in xTest/": 3}),
    "a-class-without-test": (["a/train/ 3", "a/test/ 2", "b/train/ 3"], 6, 2, ("a", "b"), {}),
    "masks-above-splits": (
        ["images/train/ 6", "images/val/ 2", "masks/train/ 6", "masks/val/ 2"], 6, 2, (), {"images in masks/": 8},
    ),
    "ade": (
        ["images/training/ 6", "images/validation/ 2", "annotations/training/ 6"], 6, 2, (),
        {"images in annotations/": 6},
    ),
    "cityscapes": (
        ["leftImg8bit/train/ 6", "leftImg8bit/val/ 2", "gtFine/train/ 6"], 6, 2, (), {"images in gtFine/": 6},
    ),
    "isic": (
        ["ISIC-2017_Training_Data/ 10", "ISIC-2017_Training_Part1_GroundTruth/ 5"], 8, 2, (),
        {"images in ISIC-2017_Training_Part1_GroundTruth/": 5},
    ),
    "one-class": (["photos/cats/ 10"], 8, 2, (), {}),
    "others": (
        ["a/ 5", "b/ 5", "x.zip 1", "b/y.txt 1", "notes 1"], 8, 2, ("a", "b"),
        {".zip": 1, ".txt": 1, "without extension": 1},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_folder_is_read_as_a_person_would_say(tmp_path, name):
    counts, num_train, num_held_out, classes, ignored = LAYOUTS[name]
    images = open_encoded_images(str(fill(tmp_path, *counts)))
    train, held_out = splits(images)
    assert len(train) + len(held_out) == num_train + num_held_out
    if images.num_train is not None:
        assert (len(train), len(held_out)) == (num_train, num_held_out)
    assert images.class_names == classes
    assert images.ignored == ignored
    for row in range(len(images)):
        if classes:
            assert f"{classes[images.labels[row]]}/" in images.name(row)
    assert not any("test" in path.lower() for path in train)


@pytest.mark.parametrize("pack", ["zip", "tar"])
@pytest.mark.parametrize("name", ["kaggle", "three", "masks", "stylegan"])
def test_an_archive_is_read_as_its_folder(tmp_path, name, pack):
    root = fill(tmp_path / "root", *LAYOUTS[name][0])
    path = tmp_path / f"x.{pack}"
    files = [file for file in sorted(root.rglob("*")) if file.is_file()]
    if pack == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            for file in files:
                archive.write(file, str(file.relative_to(root)))
            archive.writestr("__MACOSX/1.png", b"")
    else:
        with tarfile.open(path, "w") as archive:
            for file in reversed(files):
                archive.add(file, str(file.relative_to(root)))
    of_folder, of_archive = (open_encoded_images(str(source)) for source in (root, path))
    assert splits(of_folder) == splits(of_archive)
    assert (of_folder.class_names, of_folder.ignored) == (of_archive.class_names, of_archive.ignored)


@pytest.mark.parametrize(
    ("counts", "word"),
    [
        (["A/1.png 1", "A/2.png 1", "B/1.png 1", "B/2.png 1"], "data.name=paired"),
        (["trainA/ 3", "trainB/ 4", "testA/ 2", "testB/ 2"], "data.name=unpaired"),
        (["LR/1.png 1", "LR/2.png 1", "HR/1.png 1", "HR/2.png 1"], "data.name=paired"),
        (["HR/1.png 1", "HR/2.png 1", "LR/1x4.png 1", "LR/2x4.png 1"], "data.name=paired"),
        (["train/gt/ 3", "train/input/ 3", "test/gt/ 2", "test/input/ 2"], "data.name=paired"),
        (["rainy image/ 3", "ground truth/ 3"], "data.name=paired"),
        (["cats/ 3", "dogs/ 3", "masks/ 3"], "'masks'"),
        (["test/ 3", "val/ 3"], "train"),
        (["development/ 3", "eval/ 3"], "train"),
        (["a/train/ 3", "a/test/ 2", "b/ 3"], "'b/'"),
        (["hr_train/ 3", "hr_val/ 2", "lr_train/ 3", "lr_val/ 2"], "data.name=paired"),
        (["train/ 3", "test_public/ 2"], "test_public"),
        (["bus/ 3", "car/ 3", "train/steam/ 3", "train/electric/ 3"], "'steam'"),
        (["fold1/no/ 2", "fold1/yes/ 2", "fold2/no/ 2", "fold2/yes/ 2"], "'yes'"),
        (["fold1/train/ 3", "fold1/test/ 2", "fold2/train/ 3", "fold2/test/ 2"], "splits in each"),
        (["run1/train/ 3", "run1/val/ 2", "run2/train/ 3", "run2/val/ 2"], "splits in each"),
        (["Session-1/train/ 3", "Session-1/val/ 2", "Session-2/train/ 3", "Session-2/val/ 2"], "splits in each"),
        (["x/Split-0/train/ 3", "x/Split-0/val/ 2", "x/Split-1/train/ 3", "x/Split-1/val/ 2"], "splits in each"),
        (["brain/no/ 2", "brain/yes/ 2", "no/ 2", "yes/ 2"], "'brain'"),
    ],
)
def test_what_is_something_else_is_refused_with_both_ways(tmp_path, counts, word):
    root = str(fill(tmp_path, *counts))
    message = refusal(lambda: open_encoded_images(root))
    assert word in message and "data.classes=folders" in message and "data.classes=none" in message
    images = open_encoded_images(root, classes="folders")
    assert len(images.class_names) >= 2 and set(images.class_names) <= {part for c in counts for part in c.split("/")}
    assert open_encoded_images(root, classes="none").class_names == ()


@pytest.mark.parametrize(
    ("counts", "folders", "none"),
    [
        (["00000/ 3", "00001/ 3"], ("00000", "00001"), 6),
        (["images/ 3", "masks/ 3"], ("images", "masks"), 6),
        (["cats/1.png 1", "cats/2.png 1", "dogs/1.png 1", "dogs/2.png 1"], ("cats", "dogs"), 4),
        (["a/ 3", "b/ 3", "test/ 2"], ("a", "b", "test"), 8),
    ],
)
def test_the_setting_decides_what_folders_are(tmp_path, counts, folders, none):
    root = str(fill(tmp_path, *counts))
    images = open_encoded_images(root, classes="folders")
    assert images.class_names == folders and not images.notices
    images = open_encoded_images(root, classes="none")
    assert images.class_names == () and images.labels is None and len(images) == none and not images.notices


@pytest.mark.parametrize(
    "counts", [["00000/ 3", "00001/ 3"], ["cats/x.png 1", "cats/y.png 1", "dogs/x.png 1", "dogs/y.png 1"]]
)
def test_a_guess_is_said_with_the_way_to_say_it(tmp_path, counts):
    (notice,) = open_encoded_images(str(fill(tmp_path, *counts))).notices
    assert "data.classes=folders" in notice and "data.classes=none" in notice


@pytest.mark.parametrize(
    "counts",
    [
        [f"{digit}/{row}.png 1" for digit in range(10) for row in range(3)],
        ["images/ 3", "labels/x.txt 1", "__MACOSX/x.png 1"],
        ["a/ 2", "b/ 2", "__MACOSX/._1 1", "annotations/x.xml 1"],
    ],
)
def test_the_most_common_layouts_have_no_warning(tmp_path, counts):
    assert not open_encoded_images(str(fill(tmp_path, *counts))).notices


@pytest.mark.parametrize(
    "names",
    [("blood_test", "saliva", "urine_test"), ("blood_test", "bullet_train"), ("en", "tr", "ts"), ("exam", "quiz")],
)
def test_words_of_splits_in_names_of_classes_are_no_splits(tmp_path, names):
    images = open_encoded_images(str(fill(tmp_path, *(f"{name}/ 5" for name in names))))
    assert images.class_names == names and images.class_sizes() == [5] * len(names) and images.num_train is None


@pytest.mark.parametrize("folders", [("00000/", "00001/"), ("a/", "b/c/"), ("x/y/", "x/z/")])
def test_an_image_stays_in_its_split_when_folders_are_added(tmp_path, folders):
    first, second = folders
    train, held_out = splits(open_encoded_images(str(fill(tmp_path, f"{first} 60")), classes="none"))
    more_train, more_held_out = splits(open_encoded_images(str(fill(tmp_path, "z/ 0", f"{second} 60")), classes="none"))
    assert train < more_train and held_out < more_held_out and len(held_out) > 1


def test_a_deep_tree_needs_no_deep_stack(tmp_path):
    deep = tmp_path.joinpath(*["d"] * 300)
    deep.mkdir(parents=True)
    (deep / "1.png").write_bytes(png())
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + 150)
    try:
        paths = find_files(tmp_path)
    finally:
        sys.setrecursionlimit(limit)
    assert paths == [b"d/" * 300 + b"1.png"]


def test_a_pipe_is_said(tmp_path):
    os.mkfifo(fill(tmp_path, ". 3") / "x.png")
    images = open_encoded_images(str(tmp_path))
    assert len(images) == 3 and "x.png" in images.notices[0]


def test_names_that_are_no_text_stay_two_classes(tmp_path):
    for name in (b"c\xff", b"c\xfe"):
        os.makedirs(os.path.join(os.fsencode(tmp_path), name))
        for row in range(2):
            with open(os.path.join(os.fsencode(tmp_path), name, b"%d.png" % row), "wb") as file:
                file.write(png())
    assert len(set(open_encoded_images(str(tmp_path)).class_names)) == 2


def test_stray_images_next_to_classes_name_the_setting(tmp_path):
    root = str(fill(tmp_path, "a/ 2", "b/ 2", ". 1"))
    assert "data.classes=none" in refusal(lambda: open_encoded_images(root))
    assert len(open_encoded_images(root, classes="none")) == 5


def test_describe_is_one_line_of_what_happens(tmp_path):
    root = fill(tmp_path, "a/ 10", "b/ 10", "x.jfif.zip 1")
    line = open_encoded_images(str(root)).describe(0.2)
    assert "20 images in 2 classes" in line and "ignored: 1 .zip" in line and "\n" not in line
    train, held_out = splits(open_encoded_images(str(root)))
    assert f"trains on {len(train)}, holds out {len(held_out)}" in line


def test_the_start_of_a_run_says_what_is_not_trained_on(tmp_path):
    root = fill(tmp_path, "train/ 8", "val/ 3", "test/ 4", "x.txt 1")
    train, held_out = (folder.source(folder.Options(path=str(root), size=8), split) for split in ("train", "held_out"))
    assert "holds out 3" in train.reading and "4 images in test/" in train.reading and "1 .txt" in train.reading
    assert held_out.reading == ""


def test_names_with_newlines_and_links_are_one_line_each(tmp_path):
    fill(tmp_path, "a\nb/ 2", "c/ 2")
    (tmp_path / "c" / "link.png").symlink_to(tmp_path / "c" / "1_0.png")
    (tmp_path / "folder").symlink_to(tmp_path / "c")
    images = open_encoded_images(str(tmp_path))
    assert images.class_names == ("a\nb", "c", "folder")
    assert all("\n" not in line for line in (*images.notices, images.describe()))
    (tmp_path / "stray\n.png").write_bytes(png())
    refusal(lambda: open_encoded_images(str(tmp_path)))


def test_prepare_says_what_it_has_not_read(tmp_path):
    root = fill(tmp_path / "data", "train/ 8", "val/ 3", "test/ 4", "x.zip 1")
    shards = prepare_shards(str(root), tmp_path / "out")
    assert "4 images in test/, 1 .zip" in shards.summary and any(
        shards.summary in line for line in format_shards(shards)
    )
