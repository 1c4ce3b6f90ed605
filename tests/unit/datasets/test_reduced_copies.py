"""Low-resolution copies next to the images they were made of are not trained on."""

import shutil

import numpy as np
import pytest
from PIL import Image

from paragan.datasets import folder, low_resolution, paired
from paragan.datasets.base.open_images import open_encoded_images
from paragan.datasets.preparation.dataset_check import check_dataset, guess_data_set

SIDE = 32
NUM = 6


def put(path, seed, factor=1, noise=0):
    coarse = Image.fromarray(np.random.default_rng(seed).integers(0, 256, (5, 5, 3)).astype(np.uint8))
    pixels = np.asarray(coarse.resize((SIDE, SIDE), Image.Resampling.BICUBIC).reduce(factor))
    pixels = pixels + np.random.default_rng(seed).normal(0, noise, pixels.shape)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(path)


def read(path, module=low_resolution, **options):
    sources = [
        module.source(module.Options(path=str(path), size=8, **options), split) for split in ("train", "held_out")
    ]
    return sorted(source.where(row).removeprefix(str(path)) for source in sources for row in range(len(source)))


LAYOUTS = {
    "names with x4": {"HR/{}.png": 1, "LR/{}x4.png": 4},
    "equal names": {"high/{}.png": 1, "low/{}.jpg": 2},
    "several factors": {"images/{}.png": 1, "LR_bicubic/X2/{}x2.png": 2, "LR_bicubic/X4/{}x4.png": 4},
    "splits": {
        "DIV_train_HR/{}.png": 1,
        "DIV_valid_HR/{}.png": 1,
        "DIV_train_LR/{}x4.png": 4,
        "DIV_valid_LR/{}x4.png": 4,
    },
    "classes": {"HR/cats/c{}.png": 1, "HR/dogs/d{}.png": 1, "LR/cats/c{}.png": 4, "LR/dogs/d{}.png": 4},
    "thumbnails above": {"full/{}.png": 1, "{}.png": 8},
}


@pytest.mark.parametrize("is_archive", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_reduced_copies_are_not_trained_on_and_said(tmp_path, layout, is_archive):
    for pattern, factor in layout.items():
        split = "valid" in pattern
        for number in range(NUM):
            put(
                tmp_path / "data" / pattern.format(number),
                number + 100 * split + 50 * ("dogs" in pattern),
                factor,
                2 * factor,
            )
    path = tmp_path / "data"
    path = shutil.make_archive(str(path), "zip", path) if is_archive else path
    num_copies = NUM * sum(factor > 1 for factor in layout.values())
    num_originals = NUM * sum(factor == 1 for factor in layout.values())
    for module in (low_resolution, folder):
        assert len(read(path, module)) == num_originals
    reading = low_resolution.source(low_resolution.Options(path=str(path), size=8), "train").reading
    assert "reduced copies of" in reading
    report = check_dataset(str(path))
    counted = {kind: number for kind, number in report.ignored.items() if "reduced copies" in kind}
    if not report.pairs:  # or the command trains on pairs
        assert (report.images, sum(counted.values())) == (num_originals, num_copies)


@pytest.mark.parametrize(
    "layout",
    [
        {"a/{}.png": (0, 1), "b/{}.png": (1, 2)},  # other content
        {"a/{}.png": (0, 1), "b/{}.png": (0, 1)},  # equal sizes
        {"a/{}.png": (0, 1), "b/other{}.png": (0, 2)},  # other names
    ],
)
def test_other_folders_of_smaller_images_are_classes(tmp_path, layout):
    for pattern, (seed, factor) in layout.items():
        for number in range(NUM):
            put(tmp_path / pattern.format(number), number + 100 * seed, factor)
    assert len(read(tmp_path, folder)) == 2 * NUM


def test_reduced_copies_are_classes_and_pairs_on_request(tmp_path):
    for number in range(NUM):
        put(tmp_path / "HR" / f"{number}.png", number)
        put(tmp_path / "LR" / f"{number}.png", number, 4)
    assert len(read(tmp_path, folder, classes="folders")) == 2 * NUM
    assert len(read(tmp_path, paired)) == NUM


def test_a_damaged_image_is_no_copy(tmp_path):
    for number in range(NUM):
        put(tmp_path / "a" / f"{number}.png", number)
        put(tmp_path / "b" / f"{number}.png", number, 4)
    (tmp_path / "b" / "0.png").write_bytes((tmp_path / "b" / "0.png").read_bytes()[:60])
    assert len(read(tmp_path, folder)) == 2 * NUM


def test_reduced_copies_are_no_sides_of_pairs_in_check_and_training(tmp_path):
    for row in range(4):
        put(tmp_path / "HR" / f"{row}.png", row)
        put(tmp_path / "LR" / f"{row}.png", row, factor=4)
    report = check_dataset(str(tmp_path))
    assert guess_data_set(str(tmp_path)) == "folder" and report.images == 4
    assert report.ignored == open_encoded_images(str(tmp_path)).ignored
