"""StudioGAN's files: our networks compute what its modules, and plain ones with its names, compute."""

import numpy as np
import pytest
import torch

from paragan.checkpoint.layouts import published_weights
from paragan.core.layout import StoredTensors, shapes_of
from paragan.core.types import Side
from paragan.models import biggan, contragan, reacgan, sagan, sngan
from tests.unit.checkpoint.published_files import assert_same, doubles, filled, randomised
from tests.unit.checkpoint.studiogan_modules import CLASSES, Checkout, Plain, settled

pytestmark = [pytest.mark.usefixtures("doubles"), pytest.mark.filterwarnings("ignore:.*weight_norm.*")]
__all__ = ["doubles"]


@pytest.fixture(params=[Plain, Checkout], ids=["plain", "checkout"])
def project(request, monkeypatch):
    return Plain if request.param is Plain else Checkout(monkeypatch)


def inputs(latent):
    return torch.randn(3, latent), torch.tensor([4, 0, 2])


@pytest.mark.parametrize(
    ("model", "image", "attends", "settings"),
    [
        (sngan, 32, 0, {}),
        (sngan, 64, 0, {}),
        (sagan, 32, 2, {}),
        (sagan, 64, 2, {"attention": {"g": 16}}),
        (sagan, 32, 0, {"attention": {"g": None}}),
        (biggan, 32, 2, {"flavour": "studio"}),
        (biggan, 64, 3, {"flavour": "studio"}),
        (contragan, 32, 2, {}),
        (reacgan, 64, 3, {}),
    ],
)
def test_g_with_classes(tmp_path, project, model, image, attends, settings):
    is_big = model not in (sngan, sagan)
    sizes = {"latent": 16 if image == 32 else 20, **({"shared": 6} if is_big else {})}
    width = 8 if is_big or image == 64 else 4
    kind = {"big": is_big, "image": image, "width": width, "classes": CLASSES, "normed": model is not sngan}
    z, y = inputs(sizes["latent"])
    theirs = settled(randomised(project.generator(**kind, latent=sizes["latent"], attends=attends)), z, y)
    options = model.Options(width=8, **sizes, **settings)
    ours = model.Generator(options, (3, image, image), CLASSES)
    found = filled(ours, theirs, folder=tmp_path, model=name_of(model), wrap=as_saved)
    assert found == {"name": name_of(model), "width": 8, **sizes, **settings}
    assert_same(ours(z, y), theirs(z, y))


@pytest.mark.parametrize("model", [sngan, biggan])
def test_g_without_classes(tmp_path, project, model):
    kind = {"big": model is biggan, "image": 32, "width": 8, "latent": 16, "classes": 0, "normed": model is biggan}
    z, y = inputs(16)
    theirs = settled(randomised(project.generator(**kind, attends=2 if model is biggan else 0)), z, y)
    options = model.Options(width=8 if model is biggan else 16, latent=16, conditional=False)
    ours = model.Generator(options, (3, 32, 32))
    assert filled(ours, theirs, folder=tmp_path, model=name_of(model))["conditional"] is False
    assert_same(ours(z), theirs(z, y))


@pytest.mark.parametrize(
    ("model", "image", "attends", "head", "settings"),
    [
        (sngan, 32, 0, "PD", {}),
        (sngan, 64, 0, "W/O", {"conditional": False}),
        (sagan, 32, 1, "AC", {"head": "auxiliary"}),
        (biggan, 64, 1, "PD", {"flavour": "studio"}),
        (biggan, 64, 2, "PD", {"flavour": "studio", "attention": {"d": 16}}),
        (contragan, 32, 1, "2C", {"embed": 7}),
        (reacgan, 64, 1, "2C", {"embed": 7}),
    ],
)
def test_d(tmp_path, project, model, image, attends, head, settings):
    classes = 0 if head == "W/O" else CLASSES
    x, y = torch.randn(3, 3, image, image), torch.tensor([4, 0, 2])
    theirs = randomised(project.discriminator(image=image, width=8, classes=classes, head=head, attends=attends))
    settled(theirs, x, y)
    width = 16 if model in (sngan, sagan) and image == 32 else 8
    ours = model.Discriminator(model.Options(width=width, **settings), (3, image, image), classes)
    found = filled(ours, theirs, folder=tmp_path, model=name_of(model), wrap=as_saved)
    assert found == {"name": name_of(model), "width": width, **settings}
    output = ours(x, y)
    there = theirs(x, y)
    assert_same(output.logits_B, there["adv_output"])
    if head == "AC":
        assert_same(output.classes_BK, there["cls_output"])
    if head == "2C":
        assert_same(output.features, torch.stack([there["embed"], there["proxy"]], 1))


def test_a_file_of_one_network_is_never_of_the_other():
    g = Plain.generator(big=False, image=64, width=4, latent=8, classes=CLASSES, normed=True, attends=0)
    stored = StoredTensors.of(g.state_dict())
    d = sagan.Discriminator(sagan.Options(width=4, attention=None), (3, 64, 64), CLASSES)
    shapes = shapes_of(d.state_dict())
    assert published_weights(stored, shapes, Side.G) is not None  # one convolution of each has the same shape
    assert published_weights(stored, shapes, Side.D) is None


def test_deep_blocks_are_no_network_of_the_table():
    state = Plain.generator(
        big=True, image=32, width=8, latent=16, classes=CLASSES, normed=True, attends=0
    ).state_dict()
    ours = biggan.Generator(biggan.Options(width=8, latent=16, shared=6, attention=None), (3, 32, 32), CLASSES)
    shapes = shapes_of(ours.state_dict())
    assert published_weights(StoredTensors.of(state), shapes) is not None
    deep = {**state, "blocks.0.0.conv2d3.bias": torch.zeros(4)}
    assert published_weights(StoredTensors.of(deep), shapes) is None


def name_of(model):
    return model.__name__.rpartition(".")[2]


def as_saved(state):
    """D's checkpoint has numbers of numpy, such as the best score."""
    return {"state_dict": state, "seed": 3, "best_fid": np.float64(7.5), "run_name": "a", "topk": None}
