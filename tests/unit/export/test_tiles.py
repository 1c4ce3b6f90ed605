"""Networks on padded inputs and in tiles, beside the network on the whole input."""

from fractions import Fraction

import pytest
import torch
import torch.nn.functional as F

from paragan.export.tiles import Tiling, call_in_tiles

_KERNEL = torch.randn(3, 3, 5, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) / 8


def convolved(x):
    """Depends on inputs at most 4 pixels away."""
    return F.conv2d(F.conv2d(x, _KERNEL, padding=2).tanh(), _KERNEL, padding=2)


def enlarged(x):
    return convolved(F.interpolate(x, scale_factor=4))


def halved(x):
    return F.avg_pool2d(convolved(x), 2)


def tiling(**changes):
    values = {"max_elements": 1, "tile": 40, "overlap": 16, "multiple": 1, "minimum": 1, "scale": Fraction(1)}
    return Tiling(**{**values, **changes})


@pytest.mark.parametrize("sizes", [(110, 61), (40, 61), (9, 100), (40, 40)])
@pytest.mark.parametrize(
    ("network", "changes"),
    [
        (convolved, {}),
        (convolved, {"overlap": 19, "tile": 5}),
        (enlarged, {"scale": Fraction(4), "overlap": 4, "tile": 24}),
        (halved, {"scale": Fraction(1, 2), "multiple": 2, "overlap": 20}),
    ],
)
def test_tiles_equal_the_whole_where_a_quarter_of_the_overlap_covers_the_receptive_field(sizes, network, changes):
    chosen = tiling(**changes)
    x = torch.randn(2, 3, *(size // chosen.multiple * chosen.multiple for size in sizes), dtype=torch.float64)
    torch.testing.assert_close(call_in_tiles(network, x, chosen), network(x), rtol=0, atol=1e-12)


@pytest.mark.parametrize(("tile", "overlap", "minimum"), [(4, 0, 16), (1, 3, 24), (40, 16, 64)])
def test_no_tile_is_smaller_than_the_network_takes(tile, overlap, minimum):
    sizes = []

    def recorded(x):
        sizes.extend(x.shape[2:])
        return x

    x = torch.randn(1, 3, 100, 70)
    chosen = tiling(tile=tile, overlap=overlap, minimum=minimum, multiple=2)
    torch.testing.assert_close(call_in_tiles(recorded, x, chosen), x)
    assert minimum <= min(sizes) and max(sizes) < 100


def test_overlap_below_the_receptive_field_changes_seams_alone():
    x = torch.randn(1, 3, 64, 64, dtype=torch.float64)
    difference = (call_in_tiles(convolved, x, tiling(tile=32, overlap=2)) - convolved(x)).abs().amax((0, 1))
    assert difference.max() > 1e-3
    assert difference[:24, :24].max() < 1e-12  # the first tile, away from its edges


def mean_of_tile(x):
    """Differs from tile to tile, as the output of a norm over the image does."""
    return x.mean((2, 3), keepdim=True).expand_as(x)


@pytest.mark.parametrize(("size", "overlap"), [(200, 16), (208, 16), (100, 30), (300, 8)])
def test_tiles_that_differ_are_blended_without_an_edge(size, overlap):
    """From one tile to the next the output changes by a share of the difference in every step, not at once."""
    x = torch.arange(float(size), dtype=torch.float64).expand(1, 1, 8, size)
    row = call_in_tiles(mean_of_tile, x, tiling(tile=64, overlap=overlap))[0, 0, 0]
    steps = row.diff()
    assert (steps >= -1e-9).all()
    assert steps.max() <= (64 - overlap) * 4 / overlap  # the last tile may overlap more than two
    assert row[-1] - row[0] > 30


@pytest.mark.parametrize("overlap", [0, 1, 2, 3, 7, 16])
def test_weights_of_an_overlap_add_up_to_one(overlap):
    weights = []

    def recorded(x):
        weights.append(x)
        return torch.ones_like(x)

    x = torch.arange(100.0, dtype=torch.float64)[None, None, None]
    assert torch.equal(call_in_tiles(recorded, x, tiling(tile=40, overlap=overlap)), torch.ones_like(x))
    assert len(weights) > 2


def test_sizes_are_padded_to_the_multiple_and_cut_again():
    sizes = []

    def recorded(x):
        sizes.append(tuple(x.shape[2:]))
        return x

    x = torch.arange(35.0).reshape(1, 1, 5, 7)
    assert torch.equal(call_in_tiles(recorded, x, tiling(max_elements=100, multiple=4)), x)
    assert sizes == [(8, 8)]


@pytest.mark.parametrize(("is_signal", "last"), [(True, 0.0), (False, 7.0)])
def test_signals_are_padded_by_silence_and_images_by_their_edge(is_signal, last):
    ends = []
    x = torch.full((1, 1, 7) if is_signal else (1, 1, 7, 7), 7.0)
    call_in_tiles(
        lambda padded: ends.append(padded.flatten()[-1].item()) or padded,
        x,
        tiling(max_elements=100, multiple=8, is_signal=is_signal),
    )
    assert ends == [last]


def test_signals_are_cut_into_chunks():
    kernel = torch.randn(1, 1, 9, dtype=torch.float64)
    x = torch.randn(1, 1, 1001, dtype=torch.float64)
    y = call_in_tiles(lambda part: F.conv1d(part, kernel, padding=4), x, tiling(tile=100, overlap=24, is_signal=True))
    torch.testing.assert_close(y, F.conv1d(x, kernel, padding=4), rtol=0, atol=1e-12)
