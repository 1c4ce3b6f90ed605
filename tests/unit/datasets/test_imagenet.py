"""ImageNet in folders: how it is unpacked, the files that label what is held out, and every mistake in one line."""

import shutil

import pytest
import torch
from PIL import Image

from paragan.datasets import imagenet
from tests.data_refusals import refusal

WNIDS = ("n01440764", "n02119789", "n03126707")
COLOURS = {"n01440764": (250, 120, 10), "n02119789": (20, 130, 30), "n03126707": (90, 90, 200)}
HELD_OUT = (WNIDS[2], WNIDS[0], WNIDS[0], WNIDS[1])  # of the pictures in order of their names
CSV = "LOC_val_solution.csv"
BOX = "85 1 499 272"


def put(path, wnid, width=40, height=30):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (width, height), COLOURS[wnid]).save(path, "JPEG", quality=95)
    return path


def flat(base):
    return {base / "val" / f"ILSVRC2012_val_{number:08}.JPEG": wnid for number, wnid in enumerate(HELD_OUT, start=1)}


@pytest.fixture
def root(tmp_path):
    """Two pictures of each class to train with, four held out, in no folders and with no labels yet."""
    for wnid in WNIDS:
        for number in range(2):
            put(tmp_path / "train" / wnid / f"{wnid}_{number}.JPEG", wnid)
    for path, wnid in flat(tmp_path).items():
        put(path, wnid)
    return tmp_path


def with_folders(root):
    for path, wnid in flat(root).items():
        put(root / "val" / wnid / path.name, wnid)
        path.unlink()


def with_csv(root, at="."):
    rows = [f"{path.stem},{wnid} {BOX} {wnid} {BOX} " for path, wnid in flat(root).items()]
    (root / at / CSV).write_text("\n".join(["ImageId,PredictionString", *reversed(rows)]))


def read(path, split="train", size=8, **options):
    return imagenet.source(imagenet.Options(str(path), size, **options), split)


def refused(path, split="train"):
    return refusal(lambda: read(path, split).fetch([0]))


def is_right(source, wnids):
    """Whether these are the classes of the rows, and what they show."""
    wnids = list(wnids)
    x, y = source.fetch(range(len(source))).values()
    assert [WNIDS[label] for label in y.tolist()] == wnids
    expected = torch.tensor([COLOURS[wnid] for wnid in wnids], dtype=torch.float64)
    assert (x.double().mean((2, 3)) - expected).abs().max() < 3


def test_training_images_are_read(root):
    is_right(read(root), (wnid for wnid in WNIDS for _ in range(2)))
    assert read(root).shape == (3, 8, 8)


@pytest.mark.parametrize("at", [".", "val"])
def test_held_out_images_without_class_folders_are_labelled_by_list(root, at):
    with_csv(root, at)
    is_right(read(root, "held_out"), HELD_OUT)


def test_held_out_images_in_class_folders_are_labelled(root):
    with_folders(root)
    is_right(read(root, "held_out"), sorted(HELD_OUT))


def test_the_folders_as_they_come_from_kaggle(root, monkeypatch):
    with_csv(root)
    (root / "LOC_synset_mapping.txt").write_text("n01440764 tench, Tinca tinca\nn02119789 kit fox\nn03126707 crane\n")
    inner = root / "ILSVRC" / "Data" / "CLS-LOC"
    inner.mkdir(parents=True)
    for part in ("train", "val"):
        (root / part).rename(inner / part)
    is_right(read(root, "held_out"), HELD_OUT)
    assert read(root).class_names == ("tench", "kit fox", "crane")
    monkeypatch.chdir(root)
    is_right(read(".", "held_out"), HELD_OUT)


def test_classes_of_equal_name_get_their_wnid(root):
    assert read(root).class_names == WNIDS
    (root / "words.txt").write_text("n01440764\tcrane, bird\nn03126707\tcrane\n")
    assert read(root).class_names == ("crane (n01440764)", "n02119789", "crane (n03126707)")


def test_a_fingerprint_follows_files_and_labels(root):
    with_csv(root)
    before = [read(root, split).fingerprint for split in ("train", "held_out")]
    put(root / "train" / WNIDS[0] / "more.JPEG", WNIDS[0])
    (root / CSV).write_text((root / CSV).read_text().replace(WNIDS[0], WNIDS[1]))
    after = [read(root, split).fingerprint for split in ("train", "held_out")]
    assert before[0] != after[0] and before[1] != after[1]
    assert read(root, size=16).fingerprint != after[0]


def test_missing_data_set_raises(root):
    assert (
        "data.path is required for dataset 'imagenet'; pass data.path=DIR of a folder with train/WNID/*.JPEG and val"
        in refused("")
    )
    assert "data.path: no folder" in refused(root / "nowhere")
    assert "no folder 'train'" in refused(root / "val") and "ILSVRC/Data/CLS-LOC" in refused(root / "val")
    shutil.rmtree(root / "val")
    assert f"{root}: no folder 'val'" in refused(root, "held_out")
    (root / "val").mkdir()
    assert "val: no .JPEG images" in refused(root, "held_out")


@pytest.mark.parametrize("name", ["ILSVRC2012_img_train.tar", "imagenet.zip"])
def test_an_archive_is_to_be_unpacked(tmp_path, name):
    (tmp_path / name).touch()
    assert "is a file" in refused(tmp_path / name) and "unpack it first" in refused(tmp_path / name)


def test_archives_of_classes_are_to_be_unpacked(root):
    shutil.rmtree(root / "train")
    (root / "train").mkdir()
    for wnid in WNIDS:
        (root / "train" / f"{wnid}.tar").touch()
    assert f"archives such as '{WNIDS[0]}.tar', but no class folders; unpack each" in refused(root)


def test_class_without_images_raises(root):
    (root / "train" / "n09999999").mkdir()
    assert "train: no images of class n09999999" in refused(root)


def test_folders_without_wordnet_names_raise(root):
    (root / "train" / "cats").mkdir()
    assert "train: folder 'cats' is not a WordNet ID; classes are folders named like n01443537" in refused(root)


def test_a_class_held_out_that_is_not_in_train(root):
    with_folders(root)
    put(root / "val" / "n09999999" / "a.JPEG", WNIDS[0])
    message = refused(root, "held_out")
    assert "val: class 'n09999999' is not one of the 3 classes in train" in message


def test_validation_images_without_labels_raise(root):
    message = refused(root, "held_out")
    assert "the images have no labels" in message and CSV in message


def test_solution_file_that_does_not_match_raises(root):
    with_csv(root)
    lines = (root / CSV).read_text().splitlines()
    for changed, message in (
        (lines[:-1], "3 labels for 4 images"),
        ([*lines, f"other,{WNIDS[0]} {BOX}"], "5 labels for 4 images"),
        ([*lines[:-1], f"other,{WNIDS[0]} {BOX}"], "no label for 'ILSVRC2012_val_00000001'"),
        ([*lines[:-1], f"ILSVRC2012_val_00000001,n09999999 {BOX}"], "class 'n09999999' of 'ILSVRC2012_val_"),
        (lines[1:], f"the first line is 'ILSVRC2012_val_00000004,{WNIDS[1]} 85 1"),
        ([], "the first line is '' instead of 'ImageId,PredictionString'"),
        ([lines[0], "a,", *lines[1:]], "line 2: 'a,' is not of the form NAME,WNID BOX"),
    ):
        (root / CSV).write_text("\n".join(changed))
        assert f"{root / CSV}: {message}" in refused(root, "held_out")
