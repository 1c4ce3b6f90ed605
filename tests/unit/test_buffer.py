"""The buffer of fakes: the newest are shown, in their order and equally often."""

from __future__ import annotations

from collections import Counter

import torch

from paragan.schemes.asynchronous.fakes import FakesBuffer, FakesMessage


def deliver(buffer, version, count=4):
    """Images that tell where they come from: 100 version + row."""
    rows = torch.arange(count)
    buffer.put(FakesMessage({"image": (100.0 * version + rows).view(-1, 1, 1, 1), "label": rows}, version))


def shown(drawn):
    images = drawn.tensors["image"].flatten().int().tolist()
    assert drawn.tensors["label"].tolist() == [image % 100 for image in images]
    return images


def test_the_newest_are_shown_in_order():
    buffer = FakesBuffer()
    for version in (3, 5):
        deliver(buffer, version)
        drawn = buffer.draw(4)
        assert shown(drawn) == [100 * version + n for n in range(4)]
        assert drawn.version == buffer.newest.version == version


def test_the_newest_come_again_where_they_are_too_few():
    """A fast D goes on where it left off, and sees all of them equally often."""
    buffer = FakesBuffer()
    deliver(buffer, 1, count=4)
    seen = Counter(row for step in range(4) for row in shown(buffer.draw(3)))
    assert seen == {100: 3, 101: 3, 102: 3, 103: 3}
    assert shown(buffer.draw(6)) == [100, 101, 102, 103, 100, 101]
