"""Class folders with files of equal numbers are no pairs."""

import pytest

from paragan.datasets.base.open_images import open_encoded_images


@pytest.mark.parametrize(
    ("folders", "file", "is_said"),
    [
        ("circles stars", "{:04}.png", False),
        ("cats dogs birds", "img_{}.jpg", False),
        ("train/cats train/dogs", "{}.png", False),
        ("photos sketches", "{}.png street_{}.png", True),
        ("a b", "{:04}.png", True),
    ],
)
def test_numbered_files_of_classes_are_no_pairs_unless_the_folders_are_named_so(tmp_path, folders, file, is_said):
    files = [name.format(number) for name in file.split() for number in range(4)]
    for folder in folders.split():
        for name in files:
            (tmp_path / folder).mkdir(parents=True, exist_ok=True)
            (tmp_path / folder / name).touch()
    images = open_encoded_images(str(tmp_path))
    assert len(images.class_names) == len(folders.split())
    assert any("data.name=paired" in line for line in images.notices) == is_said
