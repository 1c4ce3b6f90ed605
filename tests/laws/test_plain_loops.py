"""Games of publications are the plain loops of their authors: whole, in micro-batches, resumed; float64, 1e-12.

EnCodec (recipe `codec`), VQGAN, whose D and adversarial term begin later, the recipes `translate` and `superres`, and
four discriminators of unequal size with the formulas of HiFi-GAN, DAC and Vocos. In one process; `tests/distributed`
has two ranks.
"""

import itertools
from functools import partial

import pytest
import torch

from paragan.core.types import Side
from paragan.parallel import none
from paragan.schemes import shared_fakes, synchronous
from tests.laws import codec_gan, image_recipes, vocoder_gan, vqgan_gan
from tests.laws.small_gan import continued, difference, distance

FEW = 15  # steps of the codec by default
SCHEMES = {"synchronous": synchronous, "shared_fakes": shared_fakes.Scheme()}


def codec(parts=1, is_relative=True):
    return codec_gan.game(*(codec_gan.player(side, parts=parts) for side in Side), is_relative)


def vqgan(parts=1):
    return vqgan_gan.game(*(vqgan_gan.player(side, parts=parts) for side in Side))


def images(recipe, parts=1):
    return image_recipes.game(recipe, *(image_recipes.player(recipe, side, parts=parts) for side in Side))


def vocoder(name, parts=1):
    return vocoder_gan.game(name, *(vocoder_gan.player(side, name, none.Strategy(), parts=parts) for side in Side))


def play(gan, stream, steps):
    return [synchronous.step(gan, stream).read() for _ in range(steps)]


@pytest.mark.parametrize(
    ("parts", "is_relative", "steps"),
    [
        (1, True, FEW),
        *(pytest.param(*case, codec_gan.STEPS, marks=pytest.mark.slow) for case in ((3, False), (1, True), (1, False))),
    ],
)
def test_codec_is_the_plain_loop(parts, is_relative, steps):
    gan = codec(parts, is_relative)
    report = play(gan, codec_gan.batches(), steps)[-1]
    assert difference(gan, codec_gan.plain(is_relative, steps)) <= 1e-12
    assert difference(gan, codec_gan.plain(not is_relative, steps)) > 1e-4
    assert difference(gan, {side: codec_gan.network(side) for side in Side}) > 5e-3
    assert {"g/balancer/log_mel", "g/loss/codebook", "d/loss/adversarial/0"} <= report.keys()
    assert "g/balancer/codebook" not in report


@pytest.mark.parametrize("parts", [1, 3])
def test_vqgan_is_the_plain_loop(parts):
    nets, losses = vqgan_gan.plain()
    steps, start = vqgan_gan.STEPS, vqgan_gan.D_START
    gan = vqgan(parts)
    stream = vqgan_gan.batches()
    for step, expected in enumerate(losses):
        report = synchronous.step(gan, stream).read()
        assert {name: report[name] for name in report if "adversarial" in name} == pytest.approx(expected, rel=1e-5)
        assert gan.d.net.calls == 0 or step >= start
    assert difference(gan, nets) <= 1e-12
    assert gan.d.version == steps - start
    assert gan.d.net.calls == parts * (steps - start + steps - vqgan_gan.G_START)  # real and fakes in one call
    assert difference(vqgan(), nets) > 1e-2


WAYS = [*itertools.product(vocoder_gan.PAPERS, SCHEMES, [1, 2]), ("relativistic", "synchronous", 1)]


@pytest.mark.parametrize(("name", "scheme", "parts"), WAYS)
def test_several_discriminators_are_the_publications(name, scheme, parts):
    nets, losses = vocoder_gan.plain(name, is_shared=scheme == "shared_fakes")
    gan = vocoder(name, parts)
    stream = vocoder_gan.batches()
    for expected in losses:
        found = SCHEMES[scheme].step(gan, stream).read()
        assert {side: vocoder_gan.total(found, side) for side in "gd"} == pytest.approx(expected, rel=1e-5)  # float32
    assert difference(gan, nets) <= 1e-12
    assert distance(*(dict(net.state_dict()) for net in (nets[Side.D], vocoder_gan.network(Side.D)))) > 1e-2


def test_concatenated_logits_are_another_game():
    """The largest of these discriminators has over three times the logits of the smallest."""
    outputs = vocoder_gan.network(Side.D)(next(vocoder_gan.batches()).tensors["audio"])
    logits = [of_one for group in ("mpd", "mrd") for of_one, _ in outputs[group]]
    sizes = [of_one[0].numel() for of_one in logits]
    assert max(sizes) > 3 * min(sizes)
    concatenated = torch.cat([of_one.flatten(1) for of_one in logits], 1)
    assert abs(concatenated.mean() - torch.stack([of_one.mean() for of_one in logits]).mean()) > 1e-3


# game, its batches, networks of the plain loop, steps at which it is saved
RESUMED = {
    "codec": (codec, codec_gan.batches, partial(codec_gan.plain, steps=FEW), (0, 6, 11, FEW)),
    "codec, whole": (codec, codec_gan.batches, codec_gan.plain, (0, 15, 25, codec_gan.STEPS)),
    # between both starts, and after them
    "vqgan": (vqgan, vqgan_gan.batches, lambda: vqgan_gan.plain()[0], (0, 15, 25, vqgan_gan.STEPS)),
}
for paper in vocoder_gan.PAPERS:
    plain = partial(lambda paper: vocoder_gan.plain(paper)[0], paper)
    RESUMED[paper] = (partial(vocoder, paper), vocoder_gan.batches, plain, (0, 2, vocoder_gan.STEPS))
for recipe, parts in itertools.product(image_recipes.MODELS, (3, 1)):
    of_recipe = (partial(make, recipe) for make in (image_recipes.batches, image_recipes.plain))
    RESUMED[f"{recipe}, {parts}"] = (partial(images, recipe, parts), *of_recipe, (0, 9, 17, image_recipes.STEPS))
SLOW = ("codec, whole", "translate, 1", "superres, 1")


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n in SLOW)) for n in RESUMED])
def test_resumed_training_is_the_plain_loop(name):
    make, batches, plain, sessions = RESUMED[name]
    gan = make()
    for begin, end in itertools.pairwise(sessions):
        gan = continued(gan, make())
        play(gan, batches(start=begin), end - begin)
    assert difference(gan, plain()) <= 1e-12
    assert difference(make(), plain()) > 5e-3
