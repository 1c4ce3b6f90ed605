"""The recipe `vqgan-cifar10`: its quantizer, its penalties, a run on digits, and what is refused."""

import torch
from PIL import Image
from torch.nn import functional as F

import paragan as pg
from paragan.core.types import Batch, Rows, TurnInputs
from paragan.features import cifar10
from paragan.layers.vector_quantizer import VectorQuantizer
from paragan.models import vqgan
from paragan.penalties import codebook, perceptual
from tests.tiny_run import train_whole_and_in_parts

DIGITS = {
    "data": "digits",
    "model": {"name": "vqgan", "width": 8, "codes": 16},
    "train.batch": 4,
    "adversarial.start_kimg": 0.008,
    "adversarial.d_start_kimg": 0.004,
    "every.log_steps": 1,
    "every.sample_kimg": 0.008,
}


def context(image, real, **extra):
    rows = Rows(step=0, first=0, count=len(image), total=len(image))
    feed = TurnInputs(rows=rows, seed=0, real=Batch(rows, {"image": real}), discriminator_arguments=("image",))
    return pg.PenaltyContext(
        network=None,
        feed=feed,
        outputs=pg.Outputs(fake=None, real=None, images=image, extra=extra),
        input_gradient=None,
    )


def test_run_on_digits_resumes_to_the_same_weights(tmp_path):
    whole = train_whole_and_in_parts(tmp_path, "vqgan-cifar10", DIGITS, 0.02, 0.012)
    steps = whole.records("step")
    assert ["d/loss/adversarial" in step for step in steps] == [False, True, True, True, True]
    assert ["g/balancer/adversarial" in step for step in steps] == [False, False, True, True, True]
    assert {"g/loss/l1", "g/loss/perceptual", "g/loss/codebook"} <= steps[-1].keys()
    with Image.open(tmp_path / "whole" / "samples" / "step-0000004.png") as sheet:
        assert sheet.width == 4 * sheet.height  # eight images above their reconstructions


def test_quantizer_takes_the_code_of_the_largest_cosine():
    quantizer = VectorQuantizer(5, 3).double()
    h = torch.randn(1, 3, 4, 4, dtype=torch.float64)
    through, extra = quantizer(100 * h)
    cosines = F.cosine_similarity(h.movedim(1, -1)[..., None, :], quantizer.codes.weight, dim=-1)
    assert torch.equal(extra["tokens"], cosines.argmax(-1))
    torch.testing.assert_close(through, quantizer.vectors(extra["tokens"]), rtol=0, atol=1e-15)
    torch.testing.assert_close(through.norm(dim=1), torch.ones(1, 4, 4).double())


def test_gradients_pass_straight_through_the_quantizer():
    quantizer = VectorQuantizer(5, 3)
    h = torch.randn(1, 3, 2, 2, requires_grad=True)
    through, extra = quantizer(h)
    weight = torch.randn_like(through)
    inputs = [h, quantizer.codes.weight]
    grads = torch.autograd.grad((weight * through).sum(), inputs, retain_graph=True, allow_unused=True)
    (of_unit_vectors,) = torch.autograd.grad((weight * F.normalize(h, dim=1)).sum(), h)
    assert torch.equal(grads[0], of_unit_vectors) and grads[1] is None  # the codes learn by their loss alone
    for name, learns in (("codebook", [False, True]), ("commitment", [True, False])):
        grads = torch.autograd.grad(extra[name].sum(), inputs, retain_graph=True, allow_unused=True)
        assert [grad is not None for grad in grads] == learns


def test_generator_decodes_its_tokens():
    net = vqgan.Generator(vqgan.Options(width=8, codes=16), (3, 16, 16)).eval()
    image = torch.randn(2, 3, 16, 16).tanh()
    tokens = net.encode(image)
    assert tokens.shape == (2, 4, 4) and tokens.max() < 16
    torch.testing.assert_close(net.decode(net.quantizer.vectors(tokens)), net(image).images, rtol=0, atol=1e-5)


def test_codebook_penalty_is_the_papers_loss():
    made = codebook.Penalty(codebook.Options(weight=2.0, commitment=0.5))
    losses = {"codebook": torch.rand(3, 4, 4, 2), "commitment": torch.rand(3, 4, 4, 2)}
    found = made(context(torch.zeros(3, 1), torch.zeros(3, 1), **losses))
    means = {name: loss.mean((1, 2, 3)) for name, loss in losses.items()}
    torch.testing.assert_close(found, 2 * means["codebook"] + means["commitment"])
    del losses["codebook"]
    torch.testing.assert_close(made(context(torch.zeros(3, 1), torch.zeros(3, 1), **losses)), means["commitment"])


MEAN = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
STD = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)


def test_perceptual_penalty_compares_the_layers_of_the_packaged_network():
    image, real = torch.randn(2, 2, 3, 32, 32).tanh()
    found = perceptual.Penalty(perceptual.Options(weight=3.0))(context(image, real))
    layers = cifar10.EXTRACTOR.network().features
    expected = 0
    for last in (2, 5, 9, 12, 17):
        a, b = (F.normalize(layers[: last + 1](x), dim=1) for x in (image, real))
        expected = expected + 3 * (a - b).square().mean((1, 2, 3))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)
    grey = perceptual.Penalty(perceptual.Options())(context(image[:, :1], real[:, :1]))
    assert (grey > 0).all()
