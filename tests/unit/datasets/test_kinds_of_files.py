"""Several kinds of files in one folder, by their names: what is read of them is said."""

from __future__ import annotations

import tarfile

import pytest

from paragan.datasets.base.open_images import open_encoded_images
from tests.image_folders import add_member, fill, png


@pytest.mark.parametrize(
    "names",
    [
        ("{}.png", "{}_edges.png"),
        ("{}-color.png", "{}-depth.png"),
        ("x/IMG_{}L.png", "x/IMG_{}R.png"),
        ("{}_RED.png", "{}_GREEN.png", "{}_BLUE.png"),
        ("{}.left.png", "{}.right.png"),
    ],
)
def test_sets_of_names_are_said(tmp_path, names):
    fill(tmp_path, *(f"{name.format(100 + number)} 1" for name in names for number in range(6)))
    images = open_encoded_images(str(tmp_path))
    assert len(images) == 6 * len(names)
    (line,) = images.notices
    assert "trained on" in line and "data.classes=none" in line
    assert not open_encoded_images(str(tmp_path), classes="none").notices


@pytest.mark.parametrize(
    "names",
    [
        [f"{number}.png" for number in range(9)],
        [f"{number}_A.png" for number in range(9)],
        [f"{word}.png" for word in ("a", "b", "one", "two", "three", "x")],
        [f"{n}{word}.png" for n in range(9) for word in ("", "_new") if n > 2 or not word],
        [f"{n}_mask.png" for n in range(6)] + [f"{n}.png" for n in range(6)],  # which are not read
        [f"{number:06x}.png" for number in range(0, 1 << 20, 1 << 16)],
    ],
)
def test_other_names_are_not(tmp_path, names):
    fill(tmp_path, *(f"{name} 1" for name in names))
    assert not open_encoded_images(str(tmp_path)).notices


def test_samples_of_two_images_in_a_web_dataset_are_said(tmp_path):
    with tarfile.open(tmp_path / "x.tar", "w") as archive:
        for number in range(12):
            add_member(archive, f"{number // 2:03}.{'ab'[number % 2]}x.png", png(number))
    images = open_encoded_images(str(tmp_path / "x.tar"))
    assert len(images) == 12 and "'ax', 'bx'" in images.notices[0]
