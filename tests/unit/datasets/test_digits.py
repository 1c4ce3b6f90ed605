"""The embedded digits: the published images, enlarged and split always in the same way."""

import numpy as np
import pytest
import torch

from paragan.datasets import digits

SIZES = (8, 16, 32)
PUBLISHED_COUNTS = [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]  # of optdigits.names, test part


def whole(size):
    """Both parts together."""
    parts = [digits.source(digits.Options(size), split) for split in ("train", "held_out")]
    return [torch.cat(column) for column in zip(*(p.fetch(np.arange(len(p))).values() for p in parts), strict=True)]


def test_the_file_holds_the_published_set():
    with np.load(digits._FILE, allow_pickle=False) as arrays:
        images, labels = arrays["images"], arrays["labels"]
    assert (images.shape, images.dtype, images.min(), images.max()) == ((1797, 8, 8), np.uint8, 0, 16)
    assert np.bincount(labels).tolist() == PUBLISHED_COUNTS
    first = [0, 0, 5, 13, 9, 1, 0, 0, 0, 0, 13, 15, 10, 15, 5, 0]
    assert (images[0].ravel()[:16].tolist(), labels[0]) == (first, 0)


@pytest.mark.parametrize("size", [16, 32])
def test_enlarging_is_bilinear_between_pixel_centres(size):
    small = digits.source(digits.Options(8), "held_out").fetch([3])["image"][0, 0].double() * 16 / 255
    large = digits.source(digits.Options(size), "held_out").fetch([3])["image"][0, 0].double()
    for row, column in ((0, 0), (5, 7), (size - 1, 2), (size // 2, size // 3)):
        expected = (
            plain_bilinear(small.round(), (row + 0.5) * 8 / size - 0.5, (column + 0.5) * 8 / size - 0.5) * 255 / 16
        )
        assert abs(large[row, column] - expected) <= 0.5001  # rounded to a grey level


def plain_bilinear(image, row, column):
    row, column = min(max(row, 0), 7), min(max(column, 0), 7)
    top, left = int(row), int(column)
    bottom, right = min(top + 1, 7), min(left + 1, 7)
    down, across = row - top, column - left
    upper = (1 - across) * image[top, left] + across * image[top, right]
    lower = (1 - across) * image[bottom, left] + across * image[bottom, right]
    return (1 - down) * upper + down * lower


def test_the_parts_are_the_whole_and_at_8_pixels_ink_is_only_scaled():
    with np.load(digits._FILE, allow_pickle=False) as arrays:
        rows = np.column_stack([np.rint(arrays["images"].reshape(-1, 64) / 16 * 255), arrays["labels"]])
    images, labels = whole(8)
    mine = np.column_stack([images.flatten(1).numpy(), labels.numpy()])
    assert np.array_equal(rows[np.lexsort(rows.T)], mine[np.lexsort(mine.T)])


def test_a_fifth_of_each_class_is_held_out():
    source = digits.source(digits.Options(8), "held_out")
    held_out = torch.bincount(source.fetch(np.arange(len(source)))["label"])
    assert len(source) == 360
    assert (held_out - torch.tensor(PUBLISHED_COUNTS) / 5).abs().max() <= 1


def test_the_split_never_changes():
    labels = [digits.source(digits.Options(size), "held_out").fetch(np.arange(20))["label"].tolist() for size in SIZES]
    assert labels == [[1, 6, 4, 6, 7, 5, 3, 1, 4, 6, 0, 2, 3, 9, 3, 3, 2, 2, 8, 0]] * 3
