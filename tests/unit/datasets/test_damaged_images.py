"""`data.damaged` and folders without images: which images a run has, and how it says so."""

import json
import os

import numpy as np
import pytest

from paragan.cli.main import main
from paragan.core.errors import DataError
from paragan.datasets import _damaged_images, folder, paired
from paragan.datasets._encoded_images import EncodedImages, SelectedImages
from paragan.report.page import Page
from tests.image_folders import put

TINY = (
    *("data.size=8", "model.width=4", "model.latent=8", "train.batch=8", "every.score_kimg=0", "every.sample_kimg=0"),
    *("augment=null", "evaluation.features=null"),
)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PARAGAN_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "damaged"


@pytest.fixture
def photos(tmp_path):
    """Twelve cats and twelve dogs; one cat is cut short and one dog is text."""
    root = tmp_path / "photos"
    for number in range(24):
        put(root / ("cats" if number < 12 else "dogs") / f"{number:02}.png", seed=number)
    cut = root / "cats" / "03.png"
    cut.write_bytes(cut.read_bytes()[:120])
    (root / "dogs" / "20.png").write_text("no image")
    return root


def read(root, split="train", **options):
    return folder.source(folder.Options(path=str(root), size=8, damaged="skip", **options), split)


def paths(source):
    return [source._images.name(row) for row in source._rows.tolist()]


def test_stop_names_the_setting_that_skips(photos):
    source = folder.source(folder.Options(path=str(photos), size=8), "train")
    with pytest.raises(DataError, match=r"pass data\.damaged=skip to exclude damaged images$"):
        source.fetch(range(len(source)))


def test_skip_leaves_the_damaged_out_of_both_parts_and_moves_no_other_image(photos):
    before = {
        split: paths(folder.source(folder.Options(path=str(photos), size=8), split)) for split in ("train", "held_out")
    }
    for split, all_paths in before.items():
        source = read(photos, split)
        assert paths(source) == [path for path in all_paths if path not in ("cats/03.png", "dogs/20.png")]
        source.fetch(range(len(source)))
    assert len(before["train"] + before["held_out"]) == 24


def test_skip_without_damage_is_the_same_data(tmp_path):
    for number in range(4):
        put(tmp_path / "photos" / f"{number}.png", seed=number)
    source, plain = (
        read(tmp_path / "photos"),
        folder.source(folder.Options(path=str(tmp_path / "photos"), size=8), "train"),
    )
    assert source.fingerprint == plain.fingerprint and source.notices == ()


def test_the_result_is_stored_until_a_file_changes(photos, cache, monkeypatch):
    first, decoded = read(photos), []
    monkeypatch.setattr(_damaged_images, "_decode_all", lambda images, decode: decoded.append(1) or set())
    assert read(photos).fingerprint == first.fingerprint and not decoded
    (stored,) = cache.iterdir()
    assert json.loads(stored.read_text()) == ["cats/03.png", "dogs/20.png"]
    read(photos, channels=1)
    assert decoded
    decoded.clear()
    put(photos / "cats" / "03.png", seed=3)
    read(photos)
    assert decoded


def test_labels_of_a_file_count_for_the_data_without_its_damaged_images(tmp_path):
    fingerprints = set()
    for classes in ("abababab", "aabbaabb"):
        rows = [f"{number}.png,{label}" for number, label in enumerate(classes)]
        (tmp_path / "labels.csv").write_text("\n".join(["file_name,label", *rows]))
        for number in range(8):
            put(tmp_path / "photos" / f"{number}.png", seed=number)
            os.utime(tmp_path / "photos" / f"{number}.png", (1, 1))
        (tmp_path / "photos/7.png").write_text("no image")
        os.utime(tmp_path / "photos/7.png", (1, 1))
        source = read(tmp_path / "photos", labels=str(tmp_path / "labels.csv"))
        assert source.class_names == ("a", "b")
        fingerprints.add(source.fingerprint)
    assert len(fingerprints) == 2


def test_what_images_are_holds_for_a_selection_of_them():
    attributes = ("has_label_file", "noun", "needs_every_class", "ignored")
    images = type("Images", (EncodedImages,), {"read": None, "where": None})()
    images.split_hashes = np.zeros(3, np.uint32)
    for name in attributes:
        setattr(images, name, f"other {name}")
    selected = SelectedImages(images, np.arange(2, dtype=np.uint32), ())
    assert [getattr(selected, name) for name in attributes] == [f"other {name}" for name in attributes]
    declared = {"labels", "class_names", "num_train", "split_hashes", "notices"}  # of the selected rows
    assert EncodedImages.__annotations__.keys() == declared | {*attributes}


@pytest.mark.parametrize("content", ["", "{}", "[1]", "[" * 10_000])
def test_a_stored_result_that_makes_no_sense_is_decoded_anew(photos, cache, content):
    first = read(photos)
    (stored,) = cache.iterdir()
    stored.write_text(content)
    assert read(photos).fingerprint == first.fingerprint


def test_skip_works_where_nothing_can_be_stored(photos, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("PARAGAN_CACHE", str(tmp_path / "file"))
    assert len(read(photos).notices) == 1


def test_damaged_pairs_are_skipped(tmp_path):
    for number in range(6):
        put(tmp_path / "pairs" / f"{number}.png", seed=number, size=(16, 8))
    (tmp_path / "pairs" / "4.png").write_bytes(b"")
    put(tmp_path / "pairs" / "5.png", seed=5, size=(15, 8))  # no two images of one width
    options = paired.Options(path=str(tmp_path / "pairs"), size=8, damaged="skip")
    parts = [paired.source(options, split) for split in ("train", "held_out")]
    assert sum(map(len, parts)) == 4
    assert parts[0].notices[0].startswith("2 of 6 samples are damaged")


def test_a_class_whose_images_all_are_damaged_is_no_class(photos):
    for path in (photos / "dogs").iterdir():
        path.write_bytes(b"")
    (photos / "birds").mkdir()
    put(photos / "birds" / "1.png", seed=1)
    source = read(photos)
    assert source.class_names == ("birds", "cats")
    assert source.notices[1] == "folders without images are not classes: 'dogs'"


def test_a_class_of_one_split_is_a_class_of_both(tmp_path):
    for name in ("train/a/1.png", "train/b/2.png", "val/a/3.png", "val/c/4.png"):
        put(tmp_path / name, seed=1)
    (tmp_path / "train" / "e").mkdir()
    (tmp_path / "val" / "b").mkdir()  # a class by the other part
    source = folder.source(folder.Options(path=str(tmp_path), size=8), "train")
    assert source.class_names == ("a", "b", "c")
    assert source.notices == ("folders without images are not classes: 'train/e'",)


def test_a_run_says_so_on_the_console_in_the_record_and_in_the_report(photos, tmp_path, capsys):
    (photos / "birds").mkdir()
    out = tmp_path / "run"
    words = [f"data.path={photos}", "data.damaged=skip", "train.kimg=0.016", *TINY, "--out", str(out)]
    assert main(["train", "own", *words]) == 0
    lines = (
        "warning: 2 of 24 samples are damaged and excluded (data.damaged=skip): 'cats/03.png', 'dogs/20.png'",
        "warning: folders without images are not classes: 'birds'",
    )
    console, record = capsys.readouterr().err.splitlines(), (out / "metrics.jsonl").read_text()
    page = Page(out).render().replace("&#39;", "'")
    for line in lines:
        assert line in console and line in record and line in page
