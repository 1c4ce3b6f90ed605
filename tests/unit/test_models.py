"""What single models promise: published sizes, refusals with a remedy, options of their own."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from paragan.core import shelf
from paragan.core.errors import ConfigError
from paragan.layers.armed import mixes_samples
from paragan.models import dcgan, sngan

SIDES = ("Generator", "Discriminator")
X, Y = torch.linspace(-1, 1, 4 * 64).reshape(4, 1, 8, 8), torch.tensor([0, 1, 2, 0])

COUNTS = {  # published, or built from the published code of others
    ("mlp", (1, 28, 28), 0): (1_486_352, 533_505),
    ("dcgan", (3, 32, 32), 0): (3_812_355, 2_931_009),
    ("sngan", (3, 32, 32), 0): (4_276_739, 1_053_825),
    ("sngan", (3, 32, 32), 10): (4_304_387, 1_055_105),
    ("sngan", (3, 64, 64), 200): (13_366_915, 19_747_521),
    ("sngan", (3, 128, 128), 1000): (41_996_931, 39_443_137),
}


def on_meta(name: str, side: str, shape: tuple[int, int, int], classes: int) -> nn.Module:
    file = shelf.load("models", name)
    with torch.device("meta"):
        return getattr(file, side)(file.Options(conditional=classes > 0), shape, classes)


@pytest.mark.parametrize(("case", "counts"), COUNTS.items(), ids=str)
def test_parameter_counts(case, counts):
    name, shape, classes = case
    nets = [on_meta(name, side, shape, classes) for side in SIDES]
    assert tuple(sum(p.numel() for p in net.parameters()) for net in nets) == counts


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("name", ["dcgan", "sngan"])
@pytest.mark.parametrize(
    ("shape", "size"), [((1, 28, 28), 32), ((3, 32, 64), 64), ((3, 256, 256), 128), ((3, 4, 4), 8)]
)
def test_odd_sizes_are_refused_with_a_remedy(name, side, shape, size):
    found = f"{shape[1]}x{shape[2]}"
    with pytest.raises(ConfigError, match=f"^model.{name}: found images of {found}; .* set data.size={size}$"):
        on_meta(name, side, shape, 0)


def test_sngan_normalises_every_weight_of_d_and_sums_what_is_not_negative():
    net = sngan.Discriminator(sngan.Options(width=4), (1, 8, 8), 3)
    assert all("parametrizations" in where for where, p in net.named_parameters() if p.dim() > 1)
    assert (net(X, Y).features >= 0).all()


def test_dcgan_grows_at_most_sixteenfold():
    net = on_meta("dcgan", "Generator", (3, 128, 128), 0)
    assert max(p.shape[0] for p in net.parameters() if p.dim() == 4) == 16 * dcgan.Options().width


@pytest.mark.parametrize("norm", ["batch", "spectral", "none"])
def test_dcgan_norms(norm):
    net = dcgan.Discriminator(dcgan.Options(width=4, d_norm=norm, conditional=True), (1, 8, 8), 3)
    assert mixes_samples(net) == (norm == "batch")
    names = [where for where, _ in net.named_parameters()]
    assert any("parametrizations" in where for where in names) == (norm == "spectral")
    assert net(X, Y).logits_B.isfinite().all()
