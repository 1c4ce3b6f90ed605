"""No generator of the models shelf is found to ignore its labels. A new file is picked up by its name."""

import dataclasses

import pytest
import torch

from paragan.core import registry
from paragan.game.label_use import ignores_labels
from paragan.game.prior import Prior
from paragan.layers.init import initialise

CLASSES = 3
SMALL = {"groups": 4, "embed": 5, "width": 8, "latent": 8, "style": 8, "conditional": True}
WIDTHS = {"mlp": {"g_widths": (8, 12)}, "flow_unet": {"width": 12}}
CONDITIONAL = [
    name
    for name in registry.names("models")
    if "conditional" in {field.name for field in dataclasses.fields(registry.options("models", name))}
]


@pytest.mark.parametrize("name", CONDITIONAL)
@pytest.mark.parametrize("is_initialised", [False, True])
def test_a_conditional_generator_uses_its_labels(name, is_initialised):
    file = registry.load_module("models", name)
    known = {field.name for field in dataclasses.fields(file.Options)}
    small = SMALL | WIDTHS.get(name, {})
    options = file.Options(**{key: value for key, value in small.items() if key in known})
    net = file.Generator(options, (3, 32, 32), CLASSES).double()
    if is_initialised:
        initialise(net, 0, "g")
    assert not ignores_labels(net, Prior(seed=0, latent=net.latent, num_classes=CLASSES, dtype=torch.float64))
