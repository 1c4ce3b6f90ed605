"""What every model of other samples than images keeps: trained on the data of a recipe that names it."""

import copy

import numpy as np
import pytest
import torch
from PIL import Image

from paragan import build
from paragan.config import read_recipe
from paragan.core import registry
from paragan.core.errors import ConfigError
from paragan.core.outputs import GeneratorOutput
from paragan.core.types import Side
from paragan.layers.init import SCHEMES, initialise
from paragan.loading.loader import Loader
from tests.contract.small_networks import MODELS

CPU = torch.device("cpu")
SPEECH = ("data.utterances=4", "data.segment=1024")
SETTINGS = {
    "cyclegan": (
        "translate",
        ["data.path=KINDS", "data.size=16", "model={name: cyclegan, width: 4, blocks: 1}"],
    ),
    "encodec": ("codec", ["model.width=4", "d.update_probability=1", *SPEECH]),
    "hifigan": ("vocoder", ["model.width=32", *SPEECH]),
    "real_esrgan": (
        "superres",
        [
            "data.path=IMAGES",
            "data.size=16",
            "model={name: real_esrgan, width: 8, blocks: 1, d_width: 4}",
            "penalties=[l1]",
            "adversarial={}",
        ],
    ),
    "vqgan": (
        "vqgan-cifar10",
        ["data=digits", "model.width=8", "loss=least_squares", "adversarial={}"],
    ),
}
KINDS = ("train/a", "train/b", "val/a", "val/b")
WRONG = {"cyclegan": "digits", "encodec": "digits", "hifigan": "digits", "real_esrgan": "speech", "vqgan": "speech"}


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """Eight images in a folder, and once more in a sub-folder for each of two kinds."""
    root = tmp_path_factory.mktemp("images")
    for number in range(8):
        pixels = np.random.default_rng(number).integers(0, 256, (16, 16, 3), np.uint8)
        for path in (root / "all" / f"{number}.png", root / "kinds" / KINDS[number % 4] / f"{number}.png"):
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(path)
    return root


@pytest.fixture(params=sorted({*registry.names("models")} - {*MODELS}))
def config(request, images):
    recipe, small = SETTINGS[request.param]
    small = [setting.replace("IMAGES", f"{images}/all").replace("KINDS", f"{images}/kinds") for setting in small]
    return read_recipe(recipe, [*small, "train.batch=2", "g.precision=fp32", "d.precision=fp32"])


@pytest.fixture
def found(config):
    return build.open_data(config)


def test_step_trains_every_weight(config, found):
    game = build.gan(config, found, CPU)
    before = {side: copy.deepcopy(slot.net.state_dict()) for side, slot in ((Side.G, game.g), (Side.D, game.d))}
    report = build.scheme(config).step(game, Loader(found.train, 2, 0, CPU)).read()
    assert all(torch.tensor(value).isfinite() for value in report.values())
    for side, slot in ((Side.G, game.g), (Side.D, game.d)):
        changed = [name for name, value in slot.net.state_dict().items() if not torch.equal(value, before[side][name])]
        assert len(changed) == len(before[side])


def test_generated_samples_are_those_of_the_data(config, found):
    game = build.gan(config, found, CPU)
    real = next(Loader(found.train, 2, 0, CPU))
    feed = game.prior.feed("g", real)
    made = GeneratorOutput.of(game.g.net(*feed.fake_inputs)).images
    assert made.shape == feed.real_sample.shape and made.abs().max() <= 1


@pytest.mark.parametrize("side", Side)
def test_weights_follow_seed_and_name(config, found, side):
    make = build.network_factory(config, side, found.train, CPU)
    for scheme in SCHEMES:
        nets = [make.construct() for _ in range(3)]
        for net, seed in zip(nets, (1, 1, 2), strict=True):
            net.weight_init = scheme
            initialise(net, seed, side.value)
        first, same, other = ([p.detach() for p in net.parameters()] for net in nets)
        assert all(map(torch.equal, first, same)) and not all(map(torch.equal, first, other))


def test_data_of_other_samples_is_refused_in_one_line(config):
    model = config.model.name
    data = WRONG[model]
    wrong = read_recipe(SETTINGS[model][0], [f"data={data}"])
    samples = build.open_data(wrong)
    with pytest.raises(ConfigError, match=rf"^model {model} generates the tensor '\w+', but a sample of data {data}"):
        build.gan(wrong, samples, CPU)
