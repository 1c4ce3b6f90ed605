"""The buffer of fakes: what is shown, how old it may be, and that a draw is a function of its place."""

from collections import Counter

import pytest
import torch

from paragan.game.buffer import Buffer


def delivered(buffer, version, count=4, labels=None):
    """Images that tell where they come from: 100 version + row."""
    images = (100.0 * version + torch.arange(count)).view(-1, 1, 1, 1)
    buffer.put({"image": images} | ({} if labels is None else {"label": torch.as_tensor(labels)}), version)


def shown(drawn):
    return drawn.tensors["image"].flatten().int().tolist()


def test_without_a_cache_the_newest_are_shown_in_order():
    buffer = Buffer(seed=0)
    for version in (3, 5):
        delivered(buffer, version)
        drawn = buffer.draw(4, step=version)
        assert shown(drawn) == [100 * version + n for n in range(4)]
        assert (drawn.versions, buffer.newest) == ((version,) * 4, version)


def test_the_newest_come_again_where_they_are_too_few():
    """A fast D goes on where it left off, and sees all of them equally often."""
    buffer = Buffer(seed=0)
    delivered(buffer, 1, count=4)
    seen = Counter(row for step in range(4) for row in shown(buffer.draw(3, step)))
    assert seen == {100: 3, 101: 3, 102: 3, 103: 3}
    assert shown(buffer.draw(6, 4)) == [100, 101, 102, 103, 100, 101]


@pytest.mark.parametrize("cached", [0.25, 0.5, 1.0])
def test_the_share_of_older_ones(cached):
    buffer = Buffer(seed=0, cached=cached)
    for version in range(3):
        delivered(buffer, version, count=8)
    drawn = buffer.draw(8, step=0)
    assert sum(version < 2 for version in drawn.versions) == round(8 * cached)
    assert len(set(shown(drawn))) == 8  # none twice
    assert [version for version, image in zip(drawn.versions, shown(drawn), strict=True)] == [
        i // 100 for i in shown(drawn)
    ]


def test_nothing_is_older_than_allowed_and_no_more_is_held_than_there_is_room_for():
    for max_age, capacity, held in ((2, 1000, 15), (30, 12, 10)):
        buffer = Buffer(seed=0, max_age=max_age, capacity=capacity, cached=0.9)
        for version in range(40):
            delivered(buffer, version, count=5)
            assert min(buffer.draw(10, step=version).versions) >= version - max_age
        assert len(buffer) == held
    small = Buffer(seed=0, capacity=2)
    delivered(small, 0, count=5)  # a delivery is held whole, or nothing could be shown
    assert len(small) == 5


def test_a_draw_depends_on_seed_and_place_alone():
    def draws(seed, steps):
        buffer = Buffer(seed=seed, cached=1.0)
        for version in range(4):
            delivered(buffer, version, count=8)
        return {step: shown(buffer.draw(6, step)) for step in steps}

    one = draws(3, (0, 1, 2))
    assert one == draws(3, (2, 1, 0))
    assert one[0] != one[1] and one != draws(4, (0, 1, 2))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.float32])
def test_classes_come_equally_often(dtype):
    """Of 32 older images 4 are of class 1. A label among named tensors may have any dtype."""
    buffer = Buffer(seed=0, cached=1.0)
    delivered(buffer, 0, count=32, labels=torch.tensor([1] * 4 + [0] * 28, dtype=dtype))
    delivered(buffer, 1, count=8, labels=torch.zeros(8, dtype=dtype))
    drawn = buffer.draw(8, step=0)
    labels = Counter(drawn.tensors["label"].tolist())
    assert all(
        (label == 1) == (image < 4) for label, image in zip(drawn.tensors["label"].tolist(), shown(drawn), strict=True)
    )
    assert labels == {0: 4, 1: 4}


@pytest.mark.parametrize("labels", [None, [0, 1, 1, 2]])
@pytest.mark.parametrize("count", [3, 8, 40])
def test_older_samples_are_rows_of_all_older_deliveries(labels, count):
    """The draw of every older sample is that of one concatenated pool, which is never made."""
    buffer = Buffer(seed=3, cached=1.0, max_age=100)
    for version in range(5):
        delivered(buffer, version, labels=labels)
    drawn = buffer.draw(count, step=7)
    pool = torch.cat([delivery.tensors["image"] for delivery in buffer._deliveries[:-1]])
    rows = buffer._pick(buffer._deliveries[:-1], count, 7)
    assert torch.equal(drawn.tensors["image"], pool[rows])
    assert list(drawn.versions) == [image // 100 for image in shown(drawn)]
    assert labels is None or torch.equal(drawn.tensors["label"], torch.tensor(labels * 4)[rows])


def test_a_draw_copies_only_the_chosen_samples(monkeypatch):
    buffer = Buffer(seed=3, cached=0.5, max_age=100)
    for version in range(50):
        delivered(buffer, version, count=64)
    sizes = []
    cat = torch.cat
    monkeypatch.setattr(
        torch, "cat", lambda tensors, *rest: sizes.append(sum(map(len, tensors))) or cat(tensors, *rest)
    )
    buffer.draw(16, step=1)
    assert max(sizes) <= 16
