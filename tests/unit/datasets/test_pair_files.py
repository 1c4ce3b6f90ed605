"""Pairs in two folders: each layout, held against Pillow; what has no partner, what is not a pair, channels, shapes."""

import shlex

import numpy as np
import pytest
from PIL import Image, ImageOps

from paragan.cli.main import main
from paragan.core.errors import DataError
from paragan.datasets.preparation.dataset_check import check_dataset
from tests.pair_files import archived, by_pillow, check_pairs, fetch_all, picture, source, write

LAYOUTS = {
    "folders": ("A/{}.png", "B/{}.jpg"),
    "lower case": ("a/{}.png", "b/{}.png"),
    "trainA": ("trainA/{}.png", "trainB/{}.png"),
    "train/A": ("train/A/{}.png", "train/B/{}.png"),
    "A/train": ("A/train/{}.png", "B/train/{}.bmp"),
    "input": ("input/{}.png", "target/{}.png"),
    "low": ("low/{}.png", "high/{}.webp"),
    "train_A": ("train_A/{}.png", "train_B/{}.png"),
    "Train/Input": ("Train/Input/{}.png", "Train/Target/{}.png"),
    "one root": ("set/A/{}.png", "set/B/{}.png"),
    "LR": ("LR/{}.png", "HR/{}.tif"),
    "source": ("val/source/{}.png", "val/target/{}.png"),
    "deeper": ("A/day/{}.png", "B/day/{}.png"),
}


@pytest.mark.parametrize("kind", ["folder", "zip", "tar", "tar.gz"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_files_of_equal_names_are_pairs(tmp_path, layout, kind):
    paths = write(tmp_path / "pairs", LAYOUTS[layout], range(6))
    path = archived(tmp_path / "pairs", kind)
    pixels = check_pairs(path, paths)
    back = source(path, direction="b_to_a").fetch([0])
    assert back["image"].numpy().tobytes() in pixels


def test_number_at_the_end_of_a_name_is_no_suffix(tmp_path):
    write(tmp_path, ("A/frame.{}", "B/frame.{}"), range(4))
    assert sum(len(source(tmp_path, split)) for split in ("train", "held_out")) == 4


@pytest.mark.parametrize(
    ("train", "test"),
    [
        (("trainA/{}.png", "trainB/{}.png"), ("testA/{}.png", "testB/{}.png")),
        (("train/A/{}.png", "train/B/{}.png"), ("val/A/{}.png", "val/B/{}.png")),
        (("A/train/{}.png", "B/train/{}.png"), ("A/test/{}.png", "B/test/{}.png")),
    ],
)
def test_test_folders_are_held_out(tmp_path, train, test):
    write(tmp_path, train, range(5))
    held_out = write(tmp_path, test, range(5, 8))
    assert [len(source(tmp_path, split)) for split in ("train", "held_out")] == [5, 3]
    first = source(tmp_path, "held_out").fetch([0])["condition"][0]
    assert np.array_equal(first, by_pillow(held_out[0][0]))


def test_test_split_next_to_validation_is_not_read_and_said(tmp_path):
    for split, numbers in (("train", range(5)), ("val", range(5, 8)), ("test", range(8, 10))):
        write(tmp_path, (split + "/A/{}.png", split + "/B/{}.png"), numbers)
    assert [len(source(tmp_path, split)) for split in ("train", "held_out")] == [5, 3]
    assert "4 other images" in source(tmp_path).reading


def test_sides_and_channels_are_said(tmp_path):
    write(tmp_path, ("low/{}.png", "high/{}.png"), range(3), modes=("L", "RGB"))
    picture(9).save(tmp_path / "cover.png")
    text = source(tmp_path).reading
    assert text.index("low/ (grey)") < text.index("high/ (colour)") and "1 other" in text
    text = source(tmp_path, direction="b_to_a").reading
    assert text.index("high/") < text.index("low/")


@pytest.mark.parametrize("extra", ["A/7.png", "B/odd name.png"])
def test_file_without_partner_is_refused_by_name_or_left_out(tmp_path, extra):
    write(tmp_path, LAYOUTS["folders"], range(4))
    picture(0).save(tmp_path / extra)
    with pytest.raises(DataError, match=f"partner: 1 .*{extra}.*damaged=skip"):
        source(tmp_path)
    left = [source(tmp_path, split, damaged="skip") for split in ("train", "held_out")]
    assert sum(map(len, left)) == 4 and any("partner" in line and extra in line for line in left[0].notices)


def test_two_files_of_one_name_on_a_side_are_refused(tmp_path):
    write(tmp_path, LAYOUTS["folders"], range(3))
    picture(0).save(tmp_path / "A/1.bmp")
    with pytest.raises(DataError, match=r"A/1.*A/1"):
        source(tmp_path)


def test_damaged_file_of_a_pair_is_named_or_left_out(tmp_path):
    write(tmp_path, LAYOUTS["trainA"], range(4))
    (tmp_path / "trainB/2.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"0" * 50)
    with pytest.raises(DataError, match=r"trainB/2\.png: B"):
        fetch_all(tmp_path)
    left = [source(tmp_path, split, damaged="skip") for split in ("train", "held_out")]
    assert sum(map(len, left)) == 3 and "1 of 4" in left[0].notices[0]


@pytest.mark.parametrize("size", [(40, 30), (40, 40), (30, 40), (64, 36), (100, 40)])
def test_folder_of_photos_is_refused(tmp_path, size):
    for number in range(3):
        picture(number, size).save(tmp_path / f"{number}.png")
    with pytest.raises(DataError, match=r"not a pair.*A/ and B/"):
        source(tmp_path)


@pytest.mark.parametrize("size", [(80, 40), (82, 40), (78, 40)])
def test_picture_about_twice_as_wide_as_high_has_two_halves(tmp_path, size):
    for number in range(3):
        picture(number, size).save(tmp_path / f"{number}.png")
    given, x = source(tmp_path, direction="b_to_a").fetch([0]).values()
    images = {}
    for number in range(3):
        whole = picture(number, size)
        halves = [whole.crop((left, 0, left + size[0] // 2, size[1])) for left in (0, size[0] // 2)]
        left, right = (np.asarray(ImageOps.fit(half, (16, 16), Image.Resampling.BICUBIC)) for half in halves)
        images[left.transpose(2, 0, 1).tobytes()] = right.transpose(2, 0, 1)
    assert np.array_equal(images[given[0].numpy().tobytes()], x[0])


def test_halves_of_the_shape_of_data_size_are_pairs(tmp_path):
    for number in range(3):
        picture(number, (64, 16)).save(tmp_path / f"{number}.png")
    assert source(tmp_path, size="16x32", load_size="16x32").shape == (3, 16, 32)


@pytest.mark.parametrize(
    ("modes", "options", "channels"),
    [
        (("L", "RGB"), {}, (1, 3)),
        (("RGB", "L"), {}, (3, 1)),
        (("L", "L"), {}, (1, 1)),
        (("RGB", "RGB"), {"condition_channels": 1}, (1, 3)),
        (("L", "L"), {"channels": 3}, (1, 3)),
    ],
)
def test_channels_of_both_are_those_of_the_files_or_as_set(tmp_path, modes, options, channels):
    paths = write(tmp_path, LAYOUTS["trainA"], range(2), modes)
    data = source(tmp_path, held_out=0.5, **options)
    assert (data.condition_channels, data.shape[0]) == channels
    x, condition = (value[0].numpy() for value in data.fetch([0]).values())
    expected = [
        [by_pillow(path, {1: "L", 3: "RGB"}[c]) for path, c in zip(both, channels, strict=True)] for both in paths
    ]
    assert any(np.array_equal(condition, a) and np.array_equal(x, b) for a, b in expected)


def test_colour_file_among_grey_ones_is_not_made_grey_in_silence(tmp_path):
    write(tmp_path, LAYOUTS["trainA"], range(60), ("L", "RGB"), ((8, 8), (8, 8)))
    picture(0, (8, 8)).save(tmp_path / "trainA/4.png")  # not one of those that are read at the start
    with pytest.raises(DataError, match=r"trainA/4\.png.*colour.*condition_channels"):
        fetch_all(tmp_path, size=8, load_size=8)
    assert fetch_all(tmp_path, size=8, load_size=8, condition_channels=1)


def test_one_colour_file_that_is_read_at_the_start_makes_all_of_its_side_colour(tmp_path):
    write(tmp_path, LAYOUTS["trainA"], range(4), ("L", "L"))
    picture(0).save(tmp_path / "trainA/2.png")
    data = source(tmp_path)
    assert (data.condition_channels, data.shape[0]) == (3, 1) and fetch_all(tmp_path)


def test_files_are_turned_upright_before_they_are_compared_and_cropped(tmp_path):
    upright = [picture(number, (40, 20)) for number in range(2)]
    (tmp_path / "A").mkdir()
    (tmp_path / "B").mkdir()
    for number, image in enumerate(upright):
        exif = Image.Exif()
        exif[0x0112] = 6  # stored turned to the left
        image.transpose(Image.Transpose.ROTATE_90).save(tmp_path / f"A/{number}.png", exif=exif)
        image.save(tmp_path / f"B/{number}.png")
    for x, condition in (batch.values() for batch in fetch_all(tmp_path, size="8x16", load_size="8x16")):
        assert np.array_equal(x, condition)


def test_both_files_are_cropped_by_one_rule(tmp_path):
    ((a, b), *_) = write(tmp_path, LAYOUTS["trainA"], range(2), sizes=((40, 20), (80, 40)))
    data = source(tmp_path, "held_out", held_out=0.5)
    x, condition = (value[0].numpy() for value in data.fetch([0]).values())
    where = data.where(0)
    a, b = (path.with_stem("0" if "0.png" in where else "1") for path in (a, b))
    assert np.array_equal(condition, by_pillow(a)) and np.array_equal(x, by_pillow(b))


def test_files_of_different_shape_are_refused(tmp_path):
    write(tmp_path, LAYOUTS["trainA"], range(2), sizes=((40, 30), (40, 20)))
    with pytest.raises(DataError, match="40 x 30 and 40 x 20"):
        source(tmp_path)


@pytest.mark.parametrize(
    "names", [("A/{}_A.png", "B/{}_C.png"), ("trainA/{}.png", "trainB/x{}.png"), ("low/{}x4.png", "high/{}.png")]
)
def test_two_folders_without_equal_names_are_said(tmp_path, names):
    write(tmp_path, names, range(4))
    with pytest.raises(DataError, match=r"no file of .* has a partner"):
        source(tmp_path)


@pytest.mark.parametrize("layout", ["trainA", "folders", "A/train", "low"])
def test_check_counts_what_training_reads_of_pairs(tmp_path, layout):
    write(tmp_path, LAYOUTS[layout], range(6))
    write(tmp_path, [name.replace("train", "test") for name in LAYOUTS[layout]], range(6, 8))
    report = check_dataset(str(tmp_path))
    train, held_out = (source(tmp_path, split) for split in ("train", "held_out"))
    assert report.splits == {"train": len(train), "held_out": len(held_out)}
    assert f"{report.images} pairs, holds out {len(held_out)}" in train.reading


def test_one_pair_is_refused(tmp_path):
    write(tmp_path, LAYOUTS["folders"], [0])
    with pytest.raises(DataError, match="only one pair"):
        source(tmp_path)


@pytest.mark.parametrize("layout", ["trainA", "folders", "A/train", "low"])
def test_check_counts_pairs_and_prints_their_command(tmp_path, layout):
    write(tmp_path, LAYOUTS[layout], range(6))
    report = check_dataset(str(tmp_path))
    assert report.pairs.startswith("6 ") and "train pix2pix-facades" in report.command and not report.classes
    assert "data.direction=a_to_b" in report.command and not any("augment" in line for line in report.advice)
    extra = tmp_path / LAYOUTS[layout][0].format("alone")
    picture(0).save(extra)
    report = check_dataset(str(tmp_path))
    assert "alone" in report.pairs and report.command.endswith("data.damaged=skip")


def test_check_of_unpaired_folders_prints_their_command(tmp_path):
    write(tmp_path, ("trainA/{}.png", "trainB/x{}.png"), range(4))
    report = check_dataset(str(tmp_path))
    assert report.pairs.count("4 images, 1 held out") == 2 and "train translate" in report.command


def test_command_of_the_check_trains(tmp_path, capsys):
    write(tmp_path / "pairs", LAYOUTS["folders"], range(6), ("L", "RGB"))
    assert main(["data", "check", str(tmp_path / "pairs")]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "To train:" in line]
    words = shlex.split(line.partition(" train ")[2])
    more = ["train.kimg=0.001", "model.width=2", "data.size=16", "--out", str(tmp_path / "run")]
    assert main(["train", *words, *more]) == 0
