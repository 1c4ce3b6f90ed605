"""Texts with counts."""

import pytest

from paragan.core.printable import counted


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [
        (1, "image", "1 image"),
        (0, "image", "0 images"),
        (2_000, "grey image", "2,000 grey images"),
        (1, "class", "1 class"),
        (3, "class", "3 classes"),
        (2, "batch", "2 batches"),
    ],
)
def test_noun_of_a_count_is_in_the_plural_unless_it_is_one(count, noun, text):
    assert counted(count, noun) == text
