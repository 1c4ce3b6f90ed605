"""FastGAN against the authors' networks, with equal weights in float64, where their code is at hand."""

import importlib.util
import os
from pathlib import Path

import pytest
import torch
from torch import nn

from paragan.layers.batch_norm import BatchNorm
from tests.unit.models.test_fastgan import draws, network

CODE = os.environ.get("PARAGAN_FASTGAN")  # folder of the authors' models.py


@pytest.fixture(scope="module")
def authors():
    """The authors' file, which is not part of paragan."""
    if CODE is None:
        pytest.skip("PARAGAN_FASTGAN, the folder of the authors' models.py, is not set")
    spec = importlib.util.spec_from_file_location("authors_fastgan", Path(CODE) / "models.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def give_weights(ours: nn.Module, theirs: nn.Module) -> None:
    """Copy the weights of convolutions and norms in their order; the spectral norms' vectors, too."""
    convs = [[m for m in net.modules() if isinstance(m, nn.modules.conv._ConvNd)] for net in (ours, theirs)]
    for a, b in zip(*convs, strict=True):
        norm = a.parametrizations.weight[0]
        b.weight_orig.data, b.weight_u.data, b.weight_v.data = (
            tensor.detach().clone() for tensor in (a.parametrizations.weight.original, norm.u, norm.v)
        )
    norms = [m for m in ours.modules() if hasattr(m, "gain") and isinstance(getattr(m, "norm", None), BatchNorm)]
    for a, b in zip(norms, [m for m in theirs.modules() if isinstance(m, nn.BatchNorm2d)], strict=True):
        b.weight.data, b.bias.data = a.gain.detach().clone(), a.bias.detach().clone()
        b.train()  # statistics of the batch, while spectral norms stay


@pytest.mark.parametrize("size", [256, 512, 1024])
def test_generator_equals_the_authors(authors, size):
    g = network("Generator", size, noise=False)
    theirs = authors.Generator(ngf=8, nz=6, im_size=size).double().eval()
    levels = [8 << level for level in range(size.bit_length() - 3)]
    give_weights(g.blocks[0], theirs.init)
    for level, stage in zip(levels, list(g.blocks)[1:-1], strict=True):
        give_weights(nn.ModuleList([stage.convs, stage.gates]), getattr(theirs, f"feat_{level}"))
        if stage.excite is not None:
            give_weights(stage.excite, getattr(theirs, f"se_{level}"))
    give_weights(g.blocks[-1], nn.ModuleList([theirs.to_big]))
    z = draws(2, 6)
    image = theirs(z)[0]
    image = image if size == 1024 else image.tanh()  # which they leave out at 256 and 512 px
    torch.testing.assert_close(g(z), image, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("size", [256, 512, 1024])
def test_discriminator_and_decoders_equal_the_authors(authors, size):
    d = network("Discriminator", size, width=64)
    theirs = authors.Discriminator(ndf=64, im_size=size).double().eval()
    head, names = d.blocks[-1], ("decoder_big", "decoder_small", "decoder_part")
    pairs = [(d.blocks[0], theirs.down_from_big), (head.logits, theirs.rf_big)]
    pairs += [(block, getattr(theirs, f"down_{4 << step}")) for step, block in enumerate(list(d.blocks)[1:-1])]
    pairs += [(head.branch, theirs.down_from_small), (head.small_logits, nn.ModuleList([theirs.rf_small]))]
    pairs += [(decoder, getattr(theirs, name)) for decoder, name in zip(head.decoders, names, strict=True)]
    excited = [block.excite for block in list(d.blocks)[1:-1] if block.excite is not None]
    pairs += zip(excited, (theirs.se_2_16, theirs.se_4_32, theirs.se_8_64), strict=True)
    for ours, other in pairs:
        give_weights(ours if not hasattr(ours, "direct") else nn.ModuleList([ours.main, ours.direct]), other)
    x = draws(2, 3, size, size).tanh()
    for part in range(4):
        output = d(x, None, torch.full((2,), part))
        patches, images = theirs(x, "real", part=part)
        for ours, other in zip(output.layers, images, strict=True):
            torch.testing.assert_close(ours, other, rtol=1e-9, atol=1e-10)
        # theirs: all patches of one branch, then of the other, over the batch
        of_branch = [half.reshape(2, -1) for half in patches.chunk(2)]
        torch.testing.assert_close(output.logits_B, torch.cat(of_branch, 1), rtol=1e-9, atol=1e-10)
