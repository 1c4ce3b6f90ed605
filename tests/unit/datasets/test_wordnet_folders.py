"""Images of WordNet classes, ImageNet's and Tiny ImageNet's: every published layout, and every mistake in one line."""

import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from paragan.datasets import imagenet, tiny_imagenet
from tests.data_refusals import refusal
from tests.image_folders import put

WNIDS = ("n01440764", "n02119789", "n03126707")
COLOURS = dict(zip(WNIDS, ((250, 120, 10), (20, 130, 30), (90, 90, 90)), strict=True))
HELD_OUT = (WNIDS[2], WNIDS[0], WNIDS[0], WNIDS[1])  # of the images in order of their names
CSV = "LOC_val_solution.csv"
BOX = "85 1 499 272"
WORDS = "n00001740\tentity\nn01440764\tgoldfish, Carassius auratus\nn02119789\tcat\nn03126707\tcat, Egyptian cat\n"
NAMES = ("goldfish", "cat (n02119789)", "cat (n03126707)")


def fill(top, numbers, name="{wnid}/{wnid}_{number}.JPEG", wnids=WNIDS):
    """Images named by class and number."""
    for wnid in wnids:
        for number in numbers:
            put(top / name.format(wnid=wnid, number=number), COLOURS[wnid], (40, 30), quality=95)


def read(path, split="train", size=8, module=imagenet, **options):
    return module.source(module.Options(str(path), size, **options), split)


def tiny(path, split="train"):
    return read(path, split, 64, tiny_imagenet)


def refused(path, split="train"):
    return refusal(lambda: read(path, split).fetch([0]))


def tiny_refused(path, split="train"):
    return refusal(lambda: tiny(path, split).fetch([0]))


def is_right(source, wnids):
    """Whether these are the classes of the rows, and what they show."""
    wnids = list(wnids)
    x, y = source.fetch(range(len(source))).values()
    assert [WNIDS[label] for label in y.tolist()] == wnids
    expected = torch.tensor([COLOURS[wnid] for wnid in wnids], dtype=torch.float64)
    assert (x.double().mean((2, 3)) - expected).abs().max() < 3


def flat(base):
    return {base / "val" / f"ILSVRC2012_val_{number:08}.JPEG": wnid for number, wnid in enumerate(HELD_OUT, start=1)}


@pytest.fixture
def root(tmp_path):
    """Two images of each class to train with, four held out, in no folders and with no labels yet."""
    fill(tmp_path / "train", range(2))
    for path, wnid in flat(tmp_path).items():
        put(path, COLOURS[wnid], (40, 30), quality=95)
    return tmp_path


def with_folders(root):
    for path, wnid in flat(root).items():
        (root / "val" / wnid).mkdir(exist_ok=True)
        path.rename(root / "val" / wnid / path.name)


def with_csv(root, at="."):
    rows = [f"{path.stem},{wnid} {BOX} {wnid} {BOX} " for path, wnid in flat(root).items()]
    (root / at / CSV).write_text("\n".join(["ImageId,PredictionString", *reversed(rows)]))


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
    put(root / "val" / "n09999999" / "a.JPEG")
    assert "val: class 'n09999999' is not one of the 3 classes in train" in refused(root, "held_out")


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
    put(root / "train" / WNIDS[0] / "more.JPEG")
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


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("n09999999", "train: no images of class n09999999"),
        ("cats", "train: folder 'cats' is not a WordNet ID; classes are folders named like n01443537"),
    ],
)
def test_a_folder_that_is_no_class_of_images_is_refused(root, name, message):
    (root / "train" / name).mkdir()
    assert message in refused(root)


def test_validation_images_without_labels_raise(root):
    assert f"the images have no labels; put {CSV}" in refused(root, "held_out")


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


@pytest.fixture
def official(tmp_path):
    """Tiny ImageNet: two images of each class to train with, three held out, some without a label."""
    root = tmp_path / "set" / "tiny-imagenet-200"
    fill(root / "train", range(2), "{wnid}/images/{wnid}_{number}.JPEG")
    for number, wnid in enumerate(reversed(WNIDS)):
        fill(root, [number], "val/images/val_{number}.JPEG", [wnid])
        fill(root, [number], "test/images/test_{number}.JPEG", [wnid])
        (root / "train" / wnid / "images" / "._0.JPEG").touch()  # as some file systems leave behind
        (root / "train" / wnid / f"{wnid}_boxes.txt").write_text(f"{wnid}_0.JPEG\t0\t10\t63\t58\n")
    Image.new("L", (64, 64), 90).save(root / "val" / "images" / "val_0.JPEG")  # grey becomes colour
    lines = [f"val_{number}.JPEG\t{wnid}\t0\t32\t44\t62\n" for number, wnid in enumerate(reversed(WNIDS))]
    (root / "val" / "val_annotations.txt").write_text("".join(lines))
    (root / "wnids.txt").write_text("\n".join(reversed(WNIDS)))  # in no order, as the official one
    (root / "words.txt").write_text(WORDS)
    return root


@pytest.fixture
def part_of_it(tmp_path):
    """Sorted into folders, both parts."""
    for part in ("train", "val"):
        fill(tmp_path / "part" / part, [0])
    rows = [f"{number}\t{line}" for number, line in enumerate(WORDS.splitlines()[1:])]
    (tmp_path / "part" / "classes.txt").write_text("\n".join(rows))
    return tmp_path / "part"


@pytest.mark.parametrize("above", [False, True])
def test_the_official_folder(official, above):
    path = official.parent if above else official
    is_right(tiny(path), (w for w in WNIDS for _ in range(2)))
    is_right(tiny(path, "held_out"), reversed(WNIDS))
    assert tiny(path).class_names == NAMES and tiny(path).shape == (3, 64, 64)


def test_a_part_sorted_into_folders(part_of_it):
    is_right(tiny(part_of_it), WNIDS)
    is_right(tiny(part_of_it, "held_out"), WNIDS)
    assert tiny(part_of_it).class_names == NAMES


@pytest.mark.parametrize("kind", ["zip", "tar", "gztar", "xztar"])
@pytest.mark.parametrize("named", [True, False])
def test_archives_hold_what_the_folder_holds(official, tmp_path, kind, named):
    """Named, or found in the folder."""
    folder = tmp_path / "archive"
    file = Path(shutil.make_archive(str(folder / official.name), kind, official.parent, official.name))
    for split in ("train", "held_out"):
        unpacked, packed_source = tiny(official, split), tiny(file if named else folder, split)
        assert unpacked.class_names == packed_source.class_names == NAMES
        everything = range(len(unpacked))
        assert all(map(torch.equal, unpacked.fetch(everything).values(), packed_source.fetch(everything).values()))


def test_without_names_classes_are_called_by_number(official):
    (official / "words.txt").unlink()
    assert tiny(official).class_names == WNIDS


def test_a_fingerprint_follows_the_annotations(official):
    before = tiny(official, "held_out").fingerprint
    lines = (official / "val" / "val_annotations.txt").read_text().replace(WNIDS[0], WNIDS[1])
    (official / "val" / "val_annotations.txt").write_text(lines)
    assert tiny(official, "held_out").fingerprint != before


def test_no_folder_to_train_with(official):
    (official / "train").rename(official / "training")
    assert f"{official}: no folder 'train'; data.path needs train/WNID and val" in tiny_refused(official)
    assert "no folder 'train'" in tiny_refused(official / "training")
    with zipfile.ZipFile(official / "a.zip", "w") as archive:
        for name in ("a/1.png", "b/2.png"):
            archive.writestr(name, b"")
    assert f"{official / 'a.zip'}: no folder 'train'" in tiny_refused(official / "a.zip")


@pytest.mark.parametrize("fixture", ["official", "part_of_it"])
def test_a_class_is_missing(request, fixture):
    root = request.getfixturevalue(fixture)
    shutil.rmtree(root / "train" / WNIDS[1])
    listing = "wnids.txt" if fixture == "official" else "classes.txt"
    for split in ("train", "held_out"):
        assert f"no images of class {WNIDS[1]}, one of 3 in {listing}" in tiny_refused(root, split)


def test_labels_that_are_missing(official):
    annotations = official / "val" / "val_annotations.txt"
    lines = annotations.read_text().splitlines(keepends=True)
    for changed, message in (
        (lines[1:], "2 labels for 3 images"),
        ([*lines[1:], "val_9.JPEG\tn01440764\n"], "no label for 'val_0'"),
        ([*lines[1:], "val_0.JPEG\tn09999999\n"], "class 'n09999999' of 'val_0' is not one of the 3"),
        ([*lines[1:], "val_0.JPEG\n"], "line 3: 'val_0.JPEG' is not a name and a WNID"),
    ):
        annotations.write_text("".join(changed))
        assert f"val/val_annotations.txt: {message}" in tiny_refused(official, "held_out")
    annotations.unlink()
    assert "val_annotations.txt: no such file" in tiny_refused(official, "held_out")


@pytest.mark.slow
def test_the_real_part(data_root):
    folder = data_root / "tiny-imagenet-50"
    if not folder.is_dir():
        pytest.skip(f"no {folder}")
    train, held_out = (tiny(folder, split) for split in ("train", "held_out"))
    assert (len(train), len(held_out)) == (25_000, 2_500)
    assert train.class_names == held_out.class_names
    assert train.class_names[:3] == ("goldfish", "American alligator", "black widow")
    for source, each in ((train, 500), (held_out, 50)):
        assert (np.bincount(source.labels) == each).all()
    x, y = held_out.fetch(np.arange(0, 2500, 100)).values()
    assert tuple(x.shape) == (25, 3, 64, 64) and y.tolist() == list(range(0, 50, 2))
