"""Batches for any loop: the same stream after a resume, on any number of ranks, with any threads."""

import json

import pytest
import torch

from paragan.core.errors import ConfigError, DataError
from paragan.datasets import _image_source
from paragan.loading import TensorBatches, open_images
from tests.prepared_shards import image_folder, prepared
from tests.unit.loading.test_pipeline import no_thread_remains

__all__ = ["no_thread_remains"]


@pytest.fixture(autouse=True)
def _no_cache(monkeypatch):
    monkeypatch.setattr(_image_source, "CACHE_BYTES", 0)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Twenty-three images of two classes, in a folder and in shards of five."""
    folder = tmp_path_factory.mktemp("images")
    prepared(image_folder(folder / "images"), folder / "shards")
    return folder


def images(root, name="shards", **options):
    return open_images(root / name, size=8, **{"held_out": 0.05} | options)


def stream(source, state, batches, world_size=1, batch=6, **limits):
    """The next batches, whole, and the state after them; each rank is a stream."""
    ranks = [
        TensorBatches(source, batch, seed=4, flip=True, rank=rank, world_size=world_size, **limits)
        for rank in range(world_size)
    ]
    found = []
    for rank in ranks:
        if state is not None:
            rank.load_state_dict(state)
    for _ in range(batches):
        parts = [next(rank) for rank in ranks]
        found.append({name: torch.cat([part[name] for part in parts]) for name in parts[0]})
    states = [rank.state_dict() for rank in ranks]
    for rank in ranks:
        rank.close()
    assert all(state == states[0] for state in states)
    return found, json.loads(json.dumps(states[0]))


def assert_equal(batches, expected):
    for batch, expected_batch in zip(batches, expected, strict=True):
        assert batch.keys() == expected_batch.keys()
        assert all(torch.equal(batch[name], expected_batch[name]) for name in batch)


@pytest.mark.parametrize("name", ["images", "shards"])
def test_stream_is_the_same_on_one_then_three_then_two_ranks(root, name):
    source = images(root, name)
    expected, end = stream(source, None, 15)
    one, state = stream(source, None, 4, readers=3)  # 24 samples: in the middle of a shard and of an epoch
    assert state["position"] % 5 and state["position"] == 24 % len(source)
    three, state = stream(source, state, 5, world_size=3, depth=2, readers=5, decoders=1)
    two, state = stream(source, state, 6, world_size=2, depth=7, decoders=3)
    assert_equal(one + three + two, expected)
    assert state == end
    other_batch, _ = stream(source, end, 10, batch=9)  # 90 samples: 10 of 9, or 15 of 6
    assert torch.equal(
        torch.cat([b["image"] for b in other_batch])[:18], torch.cat([b["image"] for b in stream(source, end, 3)[0]])
    )


def test_other_data_seed_or_batch_is_refused(root):
    source = images(root)
    _, state = stream(source, None, 3)
    with pytest.raises(DataError, match=r"taken on other data .*; open the same data"):
        TensorBatches(images(root, crop="squash"), 6, seed=4).load_state_dict(state)
    with pytest.raises(ConfigError, match="state: seed 4, but the batches have seed=5; use seed=4"):
        TensorBatches(source, 6, seed=5).load_state_dict(state)
    with pytest.raises(ConfigError, match="18 samples were read, no multiple of batch=5; use the former batch"):
        TensorBatches(source, 5, seed=4).load_state_dict(state)
    for bad in ({}, state | {"epoch": -1}, state | {"position": "3"}, state | {"more": 1}):
        with pytest.raises(ConfigError, match=r"state: expected epoch, position, seed, fingerprint, found .*"):
            TensorBatches(source, 6, seed=4).load_state_dict(bad)
    for rank, world_size in ((0, 7), (2, 2), (-1, 1)):
        with pytest.raises(ConfigError, match="expected 0 <= rank < world_size <= batch"):
            TensorBatches(source, 6, rank=rank, world_size=world_size)
