"""The loader: endless batches that depend on the position alone."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from paragan import build
from paragan.config import read_recipe
from paragan.core.errors import ConfigError
from paragan.core.source import Source, TensorSpec, image_specs
from paragan.core.types import Rows, present_tensors
from paragan.loading.loader import Loader
from paragan.loading.order import Order

CPU = torch.device("cpu")
WORDS = ("model={name: dcgan, width: 4, latent: 4}", "augment=null", "evaluation.features=null", "train.batch=16")


class Numbered(Source):
    """`n` images of 1x2x2; the first pixel is the row number."""

    def __init__(self, n, labelled=True):
        self.n, self.class_names = n, ("even", "odd") if labelled else ()
        self.tensors = image_specs((1, 2, 2), labelled)

    def __len__(self):
        return self.n

    def fetch(self, indices, places=None, seed=0):
        rows = torch.as_tensor(indices)
        x = torch.full((len(rows), 1, 2, 2), 7, dtype=torch.uint8)
        x[:, 0, 0, 0] = rows
        return present_tensors(image=x, label=rows % 2 if self.class_names else None)


def row_numbers(batch):
    return ((batch.image[:, 0, 0, 0] + 1) * 127.5).round().long()


def test_batch_contains_the_rows_of_its_positions():
    loader = Loader(Numbered(50), 8, seed=3, device=CPU)
    batches = [next(loader) for _ in range(20)]
    assert torch.cat([row_numbers(b) for b in batches]).tolist() == Order(50, 3).at(np.arange(160)).tolist()
    assert [b.rows for b in batches] == [Rows(step=step, first=0, count=8, total=8) for step in range(20)]


@pytest.mark.parametrize("share", [None, (3, 4)])
@pytest.mark.parametrize("rows", [50, 5000])
def test_a_position_may_be_anywhere(rows, share):
    """What is looked up ahead is not taken for another place."""
    loader, order = Loader(Numbered(rows), 8, seed=3, device=CPU, share=share), Order(rows, 3)
    first, count = share or (0, 8)
    for position in (0, 1, 700, 699, 2, 511, 512, 513, 0):
        loader.position = position
        found = next(loader)
        expected = order.at(np.arange(position * 8 + first, position * 8 + first + count)) % 256
        assert row_numbers(found).tolist() == expected.tolist()


def test_epochs_follow_one_another_without_a_seam():
    loader = Loader(Numbered(10), 4, seed=0, device=CPU)
    rows = torch.cat([row_numbers(next(loader)) for _ in range(5)])
    for epoch in rows.view(2, 10):
        assert epoch.sort().values.tolist() == list(range(10))


def mirrored(batch):
    """Which images are; the first pixel is the row, the others are 7."""
    left, right = batch.image[:, 0, 0].round(decimals=4).unbind(1)
    assert ((left == round(7 / 127.5 - 1, 4)) != (right == round(7 / 127.5 - 1, 4))).all()
    return (left == round(7 / 127.5 - 1, 4)).tolist()


def test_a_coin_for_every_place_mirrors_its_image():
    """Whatever batch and share the place is loaded in; another one in the next epoch, and of another seed."""
    whole = Loader(Numbered(7), 35, seed=3, device=CPU, flip=True)
    found = [mirrored(next(whole)) for _ in range(200)]
    coins = [coin for batch in found for coin in batch]
    assert 0.47 < sum(coins) / len(coins) < 0.53
    again = []
    parts = [Loader(Numbered(7), 10, seed=3, device=CPU, share=share, flip=True) for share in ((0, 3), (3, 7))]
    for _ in range(14):
        again += [coin for part in parts for coin in mirrored(next(part))]
    assert again == coins[:140]
    other = Loader(Numbered(7), 35, seed=4, device=CPU, flip=True)
    assert mirrored(next(other)) != coins[:35]
    straight = Loader(Numbered(7), 35, seed=3, device=CPU)
    assert not any(mirrored(next(straight)))
    runs = sum(a != b for a, b in pairwise(coins)) / len(coins)
    assert 0.47 < runs < 0.53  # coins beside each other are not alike


def test_data_that_is_to_be_mirrored_is_in_training_alone(tmp_path):
    x = np.zeros((40, 8, 8), np.uint8)
    x[:, :, :2] = 255  # bright on the left
    np.savez(tmp_path / "x.npz", images=x)
    config = read_recipe("digits", [f"data={{name: npz, path: {tmp_path / 'x.npz'}, flip: true}}", *WORDS])
    found = build.open_data(config)
    batches = build.trainer(config, tmp_path, print, stop=lambda: False).batches
    seen = torch.cat([next(batches).image for _ in range(8)])
    left = (seen[:, 0, 0, 0] == 1).double().mean()
    assert found.flip and 0.3 < left < 0.7
    assert (found.held_out.fetch(np.arange(4))["image"][:, :, :, :2] == 255).all()
    assert not build.open_data(read_recipe("digits", WORDS)).flip


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_images_are_normalised_and_labels_whole(dtype):
    batch = next(Loader(Numbered(50), 8, seed=0, device=CPU, dtype=dtype))
    assert batch.image.dtype == dtype
    assert torch.equal(batch.image[0, 0, 1], torch.full((2,), 7 / 127.5 - 1, dtype=torch.float64).to(dtype))
    assert batch.label.dtype == torch.int64
    assert torch.equal(batch.label, row_numbers(batch) % 2)


def test_shares_are_the_batch():
    loaders = [Loader(Numbered(50), 7, seed=1, device=CPU, share=share) for share in (None, (0, 3), (3, 1), (4, 3))]
    for loader in loaders:
        loader.position = 5
    whole, *parts = (next(loader) for loader in loaders)
    assert torch.equal(torch.cat([p.image for p in parts]), whole.image)
    assert torch.equal(torch.cat([p.label for p in parts]), whole.label)
    assert parts[2].rows == Rows(step=5, first=4, count=3, total=7)


@pytest.mark.parametrize("share", [(0, 9), (-1, 4), (4, 0), (8, 1)])
def test_a_share_outside_the_batch_is_refused(share):
    with pytest.raises(ConfigError, match="this rank"):
        Loader(Numbered(50), 8, seed=0, device=CPU, share=share)


def test_an_empty_data_set_is_refused():
    with pytest.raises(ConfigError, match="empty"):
        Loader(Numbered(0), 8, seed=0, device=CPU)


def test_flip_without_images_is_refused():
    points = Numbered(8)
    points.tensors = {"point": TensorSpec((2,), torch.float32)}
    with pytest.raises(ConfigError, match=r"data\.flip=true mirrors images, but the data set has none"):
        Loader(points, 4, seed=0, device=CPU, flip=True)


class Speech(Source):
    """Two sounds and their words."""

    def __init__(self, channels=1):
        self.tensors = {"audio": TensorSpec((channels, 6), torch.float64), "text": TensorSpec((4,), torch.int64)}

    def __len__(self):
        return 2

    def fetch(self, indices, places=None, seed=0):
        rows = torch.as_tensor(indices)[:, None]
        return {"audio": 3.0 + rows[..., None] * torch.ones(1, 6, dtype=torch.float64), "text": rows * torch.arange(4)}


def test_other_tensors_than_images_are_unchanged_and_cut_with_their_rows():
    batch = next(Loader(Speech(), 8, seed=1, device=CPU))
    assert batch.tensors["audio"].dtype == torch.float64 and set(batch.tensors["audio"].unique().tolist()) == {3, 4}
    assert [list(part.tensors) for part in batch.parts(2)] == [["audio", "text"]] * 2
    assert torch.equal(batch.parts(2)[1].tensors["text"], batch.tensors["text"][1::2])


def test_samples_that_differ_from_their_declaration_are_refused():
    with pytest.raises(ConfigError, match=r"Speech.fetch returned .*audio.*\(8, 1, 6\).* declare .*\(8, 2, 6\)"):
        next(Loader(Speech(channels=2), 8, seed=1, device=CPU))
