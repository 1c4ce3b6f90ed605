"""Batches of noise with the shapes of a data set, and the advice where its files are not here."""

from contextlib import nullcontext

import numpy as np
import pytest
import torch

from paragan import build
from paragan.config import read_recipe
from paragan.core.errors import ConfigError, DataError
from paragan.core.source import Source, TensorSpec
from paragan.runs.shape_only_data import data_of_shape, noise_batches, open_data_or_advise

IMAGE = TensorSpec((3, 8, 8), torch.uint8)


class Given(Source):
    """Samples of these tensors, all 1."""

    fingerprint = "given"

    def __init__(self, tensors, class_names=()):
        self.tensors = tensors
        self.class_names = class_names

    def __len__(self):
        return 4

    def fetch(self, indices, places=None, seed=0):
        rows = len(np.asarray(indices))
        return {name: torch.ones(rows, *spec.shape, dtype=spec.dtype) for name, spec in self.tensors.items()}


@pytest.mark.parametrize(
    ("tensors", "class_names"),
    [
        ({"image": TensorSpec((3, 8, 8), torch.float32)}, ()),
        ({"image": IMAGE, "label": TensorSpec((), torch.int64)}, ()),
        ({"image": IMAGE, "condition": TensorSpec((1, 8, 8), torch.float64)}, ()),
        ({"image": IMAGE, "label": TensorSpec((), torch.int64)}, ("a", "b", "c")),
        ({"image": TensorSpec((3, 8, 8), torch.uint16)}, ()),
    ],
    ids=["floating-point image", "label without classes", "floating-point condition", "label", "uint16"],
)
def test_noise_takes_every_tensor_of_images(tensors, class_names):
    source = Given(tensors, class_names)
    data = build.Data(train=source, held_out=source)
    batch = next(noise_batches(read_recipe("digits"), data, torch.device("cpu"), batch=64))
    for name in tensors.keys() - {"label"}:
        noise = batch.tensors[name]
        assert noise.std() > 0.001 and -1 <= noise.min() <= noise.max() <= 1
    if "label" in tensors:
        assert sorted(set(batch.tensors["label"].tolist())) == list(range(max(1, len(class_names))))


@pytest.mark.parametrize(
    ("error", "raised"), [(DataError, ConfigError), (OSError, ConfigError), (IndexError, IndexError)]
)
def test_a_shape_is_advised_where_files_are_missing_and_not_for_a_bug(monkeypatch, error, raised):
    def open_data(config):
        raise error("no file")

    monkeypatch.setattr(build, "open_data", open_data)
    with pytest.raises(raised, match="no file") as caught:
        open_data_or_advise(read_recipe("digits"))
    assert ("--shape" in str(caught.value)) == (raised is ConfigError)


_OWN = """
import torch
SAMPLE = "image"
class Generator(torch.nn.Module):
    latent = 4
    def __init__(self, options, shape, num_classes):
        super().__init__()
        self.shape = shape
        self.linear = torch.nn.Linear(4, shape[0] * shape[1] * shape[2])
    def forward(self, ARGUMENTS):
        return self.linear(noise).view(-1, *self.shape)
class Discriminator(torch.nn.Module):
    def __init__(self, options, shape, num_classes):
        super().__init__()
        self.linear = torch.nn.Linear(shape[0] * shape[1] * shape[2], 1)
    def forward(self, image):
        return self.linear(image.flatten(1)), None
"""


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [("noise", ""), ("noise, label", ""), ("noise, low=None", ""), ("noise, mask", "takes 'noise', 'mask'; plan it")],
)
def test_a_shape_suffices_for_networks_that_take_images_labels_and_a_latent(arguments, problem, tmp_path):
    (tmp_path / "mine.py").write_text(_OWN.replace("ARGUMENTS", arguments))
    config = read_recipe("digits", [f"model={{name: {tmp_path / 'mine.py'}}}"])
    with pytest.raises(ConfigError, match=problem) if problem else nullcontext():
        data = data_of_shape(config, (1, 8, 8), 3, None, "plan it")
        assert (data.train.shape, data.num_classes, data.is_image) == ((1, 8, 8), 3, False)


@pytest.mark.parametrize(
    ("recipe", "tensor"), [("superres", "low"), ("translate", "both"), ("vocoder", "audio"), ("codec", "audio")]
)
def test_a_shape_does_not_suffice_for_recipes_of_other_tensors(recipe, tensor):
    with pytest.raises(ConfigError, match=f"'{tensor}'.*; verify another"):
        data_of_shape(read_recipe(recipe), (3, 64, 64), 0, None, "verify another")


@pytest.mark.parametrize(("recipe", "condition"), [("vqgan-cifar10", None), ("pix2pix-facades", 3), ("digits", None)])
def test_a_shape_suffices_for_recipes_of_images_and_pairs(recipe, condition):
    data = data_of_shape(read_recipe(recipe), (3, 64, 64), 0, condition, "")
    assert data.train.condition_channels == condition
