"""Tiny ImageNet: the official layout and one sorted into folders, as folder, zip and tar; what is missing is told."""

import shutil
import tarfile
import zipfile

import numpy as np
import pytest
import torch
from PIL import Image

from paragan.datasets import tiny_imagenet
from tests.data_refusals import refusal

WNIDS = ("n01443537", "n01698640", "n02124075")
COLOURS = {"n01443537": (250, 120, 10), "n01698640": (20, 130, 30), "n02124075": (90, 90, 90)}
WORDS = "n00001740\tentity\nn01443537\tgoldfish, Carassius auratus\nn01698640\tcat\nn02124075\tcat, Egyptian cat\n"
NAMES = ("goldfish", "cat (n01698640)", "cat (n02124075)")


def put(path, wnid, side=64):
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.new("RGB", (side, side), COLOURS[wnid])
    (image.convert("L") if wnid == "n02124075" else image).save(path, quality=95)


@pytest.fixture
def official(tmp_path):
    """Two pictures of each class to train with, three held out, some nobody has labelled."""
    root = tmp_path / "set" / "tiny-imagenet-200"
    for wnid in WNIDS:
        for number in range(2):
            put(root / "train" / wnid / "images" / f"{wnid}_{number}.JPEG", wnid)
        (root / "train" / wnid / "images" / "._0.JPEG").touch()  # as some file systems leave behind
        (root / "train" / wnid / f"{wnid}_boxes.txt").write_text(f"{wnid}_0.JPEG\t0\t10\t63\t58\n")
    for number, wnid in enumerate(reversed(WNIDS)):
        put(root / "val" / "images" / f"val_{number}.JPEG", wnid)
        put(root / "test" / "images" / f"test_{number}.JPEG", wnid)
    lines = [f"val_{number}.JPEG\t{wnid}\t0\t32\t44\t62\n" for number, wnid in enumerate(reversed(WNIDS))]
    (root / "val" / "val_annotations.txt").write_text("".join(lines))
    (root / "wnids.txt").write_text("\n".join(reversed(WNIDS)))  # in no order, as the official one
    (root / "words.txt").write_text(WORDS)
    return root


@pytest.fixture
def part_of_it(tmp_path):
    """Sorted into folders, both parts."""
    root = tmp_path / "part"
    for wnid in WNIDS:
        put(root / "train" / wnid / f"{wnid}_0.JPEG", wnid)
        put(root / "val" / wnid / f"val_{wnid}.JPEG", wnid)
    rows = [f"{number}\t{line}" for number, line in enumerate(WORDS.splitlines()[1:])]
    (root / "classes.txt").write_text("\n".join(rows))
    return root


def read(path, split="train", **options):
    return tiny_imagenet.source(tiny_imagenet.Options(str(path), **options), split)


def refused(path, split="train"):
    return refusal(lambda: read(path, split).fetch([0]))


def is_right(source, wnids, size=64):
    """Whether these are the classes of the rows, and what they show."""
    wnids = list(wnids)
    x, y = source.fetch(range(len(source))).values()
    assert [WNIDS[label] for label in y.tolist()] == wnids
    assert tuple(x.shape[1:]) == (3, size, size)
    expected = torch.tensor([COLOURS[wnid] for wnid in wnids], dtype=torch.float64)
    assert (x.double().mean((2, 3)) - expected).abs().max() < 3
    assert source.class_names == NAMES


@pytest.mark.parametrize("above", [False, True])
def test_the_official_folder(official, above):
    path = official.parent if above else official
    is_right(read(path), (w for w in WNIDS for _ in range(2)))
    is_right(read(path, "held_out"), reversed(WNIDS))


def test_a_part_sorted_into_folders(part_of_it):
    is_right(read(part_of_it), WNIDS)
    is_right(read(part_of_it, "held_out"), WNIDS)


@pytest.mark.parametrize("packed", ["zip", "tar", "tar.gz", "tar.xz"])
@pytest.mark.parametrize("named", [True, False])
def test_archives_hold_what_the_folder_holds(official, tmp_path, packed, named):
    """Named, or found in the folder."""
    file = tmp_path / "archive" / f"tiny-imagenet-200.{packed}"
    file.parent.mkdir()
    if packed == "zip":
        with zipfile.ZipFile(file, "w") as archive:
            for path in official.rglob("*.*"):
                archive.write(path, path.relative_to(official.parent))
    else:
        with tarfile.open(file, f"w:{packed[4:]}") as archive:
            archive.add(official, "./tiny-imagenet-200")
    for split in ("train", "held_out"):
        unpacked, packed_source = read(official, split), read(file if named else file.parent, split)
        assert unpacked.class_names == packed_source.class_names == NAMES
        everything = range(len(unpacked))
        assert all(map(torch.equal, unpacked.fetch(everything).values(), packed_source.fetch(everything).values()))


def test_without_names_classes_are_called_by_number(official):
    (official / "words.txt").unlink()
    assert read(official).class_names == WNIDS


def test_a_fingerprint_follows_the_labels(official):
    before = read(official, "held_out").fingerprint
    lines = (official / "val" / "val_annotations.txt").read_text().replace(WNIDS[0], WNIDS[1])
    (official / "val" / "val_annotations.txt").write_text(lines)
    assert read(official, "held_out").fingerprint != before


def test_no_folder_to_train_with(official):
    (official / "train").rename(official / "training")
    assert f"{official}: no folder 'train'; data.path needs train/WNID and val" in refused(official)
    assert "no folder 'train'" in refused(official / "training")
    with zipfile.ZipFile(official / "a.zip", "w") as archive:
        for name in ("a/1.png", "b/2.png"):
            archive.writestr(name, b"")
    assert f"{official / 'a.zip'}: no folder 'train'" in refused(official / "a.zip")


@pytest.mark.parametrize("fixture", ["official", "part_of_it"])
def test_a_class_is_missing(request, fixture):
    root = request.getfixturevalue(fixture)
    shutil.rmtree(root / "train" / WNIDS[1])
    listing = "wnids.txt" if fixture == "official" else "classes.txt"
    for split in ("train", "held_out"):
        assert f"no images of class {WNIDS[1]}, one of 3 in {listing}" in refused(root, split)


def test_labels_that_are_missing(official):
    annotations = official / "val" / "val_annotations.txt"
    lines = annotations.read_text().splitlines(keepends=True)
    for changed, message in (
        (lines[1:], "2 labels for 3 images"),
        ([*lines[1:], "val_9.JPEG\tn01443537\n"], "no label for 'val_0'"),
        ([*lines[1:], "val_0.JPEG\tn09999999\n"], "class 'n09999999' of 'val_0' is not one of the 3"),
        ([*lines[1:], "val_0.JPEG\n"], "line 3: 'val_0.JPEG' is not a name and a WNID"),
    ):
        annotations.write_text("".join(changed))
        assert f"val/val_annotations.txt: {message}" in refused(official, "held_out")
    annotations.unlink()
    assert "val_annotations.txt: no such file" in refused(official, "held_out")


@pytest.mark.slow
def test_the_real_part(data_root):
    folder = data_root / "tiny-imagenet-50"
    if not folder.is_dir():
        pytest.skip(f"no {folder}")
    train, held_out = (read(folder, split) for split in ("train", "held_out"))
    assert (len(train), len(held_out)) == (25_000, 2_500)
    assert train.class_names == held_out.class_names
    assert train.class_names[:3] == ("goldfish", "American alligator", "black widow")
    for source, each in ((train, 500), (held_out, 50)):
        assert (np.bincount(source.labels) == each).all()
    x, y = held_out.fetch(np.arange(0, 2500, 100)).values()
    assert tuple(x.shape) == (25, 3, 64, 64) and y.tolist() == list(range(0, 50, 2))
