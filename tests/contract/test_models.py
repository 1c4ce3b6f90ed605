"""What every file of the models shelf keeps. A new file is picked up by its name; sizes it refuses are skipped."""

import copy
import dataclasses
from itertools import pairwise, product

import pytest
import torch
from torch.func import functional_call, stack_module_state

from paragan.core import registry
from paragan.core.errors import ConfigError, ParaganError
from paragan.core.outputs import DiscriminatorOutput
from paragan.layers.blocks import run_blocks
from paragan.layers.init import SCHEMES, initialise
from paragan.layers.update_once import begin_update, hold_updates, mixes_samples
from tests.contract.small_networks import (
    BATCH,
    CLASSES,
    MODELS,
    SIDES,
    SIZES,
    SMALL,
    all_of,
    build,
    call,
    condition_for,
    construct,
    inputs,
    is_conditional,
    more_inputs,
    options,
    stirred,
    tensor_of,
)


def again(name: str, side: str, classes: int) -> tuple[pytest.MarkDecorator, ...]:
    """A class that is that of another file, too, is looked at there; a conditional network daily with its labels."""
    kinds = {each: getattr(registry.load_module("models", each), side) for each in MODELS}
    is_another = any(issubclass(kinds[name], kind) for each, kind in kinds.items() if each != name)
    return (pytest.mark.slow,) if is_another or (is_conditional(name) and not classes) else ()


CASES = [
    pytest.param(
        name, side, classes, marks=again(name, side, classes), id=f"{name}-{side}-{'labels' if classes else 'plain'}"
    )
    for name, side, classes in product(MODELS, SIDES, (0, CLASSES))
    if not classes or is_conditional(name)
]
every_network = pytest.mark.parametrize(("name", "side", "classes"), CASES)
CONDITIONAL = [name for name in MODELS if is_conditional(name)]


@every_network
@pytest.mark.parametrize("shape", SIZES, ids=str)
def test_shapes_and_ranges(name, side, classes, shape):
    net = build(name, side, classes, shape)
    x, y = inputs(net, classes, shape)
    out = call(net, x, y)
    if side == "Generator":
        assert out.shape == (BATCH, *shape)
        assert out.std() > 1e-3
        for parameter in net.blocks[-1].parameters():
            parameter.data.mul_(1000)
        largest = call(net, x, y).abs().max()
        assert (0.9 < largest <= 1) == getattr(net, "bounded", True)
    else:
        patches = 2 * getattr(net, "takes_condition", False) + getattr(net, "reconstructs", False)
        assert isinstance(out, DiscriminatorOutput) and len(out.logits_B) == BATCH and out.logits_B.dim() == 1 + patches
        assert out.layers and all(len(features) == BATCH for features in out.layers)


@every_network
@pytest.mark.parametrize(
    "pixels", [96, *(pytest.param(n, marks=pytest.mark.slow) for n in (8, 12, 16, 24, 32, 48, 64, 128))]
)
def test_sizes_by_shape_alone(name, side, classes, pixels):
    """At the default width, on the meta device: nothing is computed."""
    kind = registry.load_module("models", name)
    chosen = options(name, conditional=classes > 0)
    default = {f.name: f.default for f in dataclasses.fields(chosen) if f.name in SMALL}
    with torch.device("meta"):
        net = hold_updates(getattr(kind, side)(dataclasses.replace(chosen, **default), (3, pixels, pixels), classes))
        x = torch.empty(BATCH, *((net.latent,) if side == "Generator" else (3, pixels, pixels)))
        beside = (torch.empty(BATCH, 3, pixels, pixels),) if getattr(net, "takes_condition", False) else ()
        out = net(x, torch.zeros(BATCH, dtype=torch.int64) if classes else None, *beside)
    assert tensor_of(out).shape == (
        (BATCH, 3, pixels, pixels) if side == "Generator" else (BATCH, *out.logits_B.shape[1:])
    )


@every_network
def test_blocks_are_the_network(name, side, classes):
    net = build(name, side, classes)
    assert [id(p) for p in net.blocks.parameters()] == [id(p) for p in net.parameters()]
    x, y = inputs(net, classes)
    condition = condition_for(net, x)
    first = x if condition is None else (condition,) if side == "Generator" else torch.cat([condition, x], 1)
    last = run_blocks(net.blocks, first, y)
    assert torch.equal(last if side == "Generator" else last[0], tensor_of(call(net, x, y)))
    assert side == "Generator" or isinstance(last, tuple)


@every_network
def test_gradients_reach_every_parameter(name, side, classes):
    net = stirred(build(name, side, classes))
    all_of(call(net, *inputs(net, classes))).sin().sum().backward()
    for where, parameter in net.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), where
        assert parameter.dim() < 2 or parameter.grad.any(), where  # a bias before a batch norm gets nought


@every_network
def test_starts_are_keyed_by_seed_and_name(name, side, classes):
    torch.manual_seed(0)
    a = construct(name, side, classes).state_dict()
    torch.manual_seed(1)
    construct(name, "Generator", 0)  # moves the global generator on
    b = construct(name, side, classes).state_dict()
    c = construct(name, side, classes, seed=1).state_dict()
    assert all(torch.equal(a[k], b[k]) for k in a)
    assert any(not torch.equal(a[k], c[k]) for k in a)


@every_network
def test_every_scheme_fits(name, side, classes):
    net = build(name, side, classes)
    for scheme in SCHEMES:
        net.weight_init = scheme
        initialise(net, 0, side)
        hold_updates(net)
        assert all(parameter.isfinite().all() for parameter in net.parameters())


@every_network
def test_state_and_copies(name, side, classes):
    net = stirred(build(name, side, classes))
    x, y = inputs(net, classes)
    begin_update(net)
    call(net, x, y)
    other = build(name, side, classes, seed=1)
    other.load_state_dict(net.state_dict())
    for same in (other, copy.deepcopy(net)):
        assert torch.equal(tensor_of(call(same.eval(), x, y)), tensor_of(call(net.eval(), x, y)))
    frozen = {k: v.clone() for k, v in net.state_dict().items()}
    twin = copy.deepcopy(net).train()
    begin_update(twin)
    tensor_of(call(twin, x, y)).sum().backward()
    stirred(twin)
    assert all(torch.equal(frozen[k], v) for k, v in net.state_dict().items())


@every_network
def test_unarmed_forwards_change_nothing(name, side, classes):
    net = stirred(build(name, side, classes))
    before = {k: v.clone() for k, v in net.state_dict().items()}
    call(net, *inputs(net, classes))
    assert all(torch.equal(before[k], v) for k, v in net.state_dict().items())


@every_network
def test_rows_are_alone_unless_it_says_that_it_mixes(name, side, classes):
    net = stirred(build(name, side, classes))
    x, y = inputs(net, classes)
    some = tensor_of(call(net, x[:2], None if y is None else y[:2]))
    equal = torch.allclose(some, tensor_of(call(net, x, y))[:2], rtol=1e-11, atol=1e-12)
    assert equal != mixes_samples(net)


@every_network
def test_stacked_equals_each_alone(name, side, classes):
    """A grid of cells runs as one program: vmap over stacked parameters and buffers, state advancing."""
    nets = [stirred(build(name, side, classes, seed=seed)) for seed in (0, 1)]
    x, y = inputs(nets[0], classes)
    parameters, buffers = stack_module_state(nets)
    template = copy.deepcopy(nets[0])
    begin_update(template)
    given = more_inputs(nets[0], x)
    out = torch.vmap(lambda p, b: tensor_of(functional_call(template, (p, b), (x, y, *given))))(parameters, buffers)
    for i, net in enumerate(nets):
        begin_update(net)
        torch.testing.assert_close(out[i], tensor_of(call(net, x, y)), rtol=1e-10, atol=1e-11)
        for key, value in net.named_buffers():
            torch.testing.assert_close(buffers[key][i], value, rtol=1e-10, atol=1e-12)


@every_network
def test_low_precision_and_layout(name, side, classes):
    """Under autocast images and logits are float32 and near; channels-last changes nothing but the order of sums."""
    net = stirred(build(name, side, classes, (3, 16, 16))).float()
    x, y = inputs(net, classes, (3, 16, 16), torch.float32)
    plain = tensor_of(call(net, x, y))
    with torch.autocast("cpu", torch.bfloat16):
        low = tensor_of(call(net, x, y))
    assert low.dtype == torch.float32
    assert (low - plain).norm() < 0.2 * plain.norm()
    net = net.to(memory_format=torch.channels_last)
    x = x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x
    torch.testing.assert_close(tensor_of(call(net, x, y)), plain, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_discriminators_can_be_differentiated_twice(name):
    net = stirred(build(name, "Discriminator", 0))
    x = inputs(net, 0)[0].requires_grad_()
    (grad,) = torch.autograd.grad(tensor_of(call(net, x)).sum(), x, create_graph=True)
    grad.square().sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in net.parameters())
    assert any(p.grad is not None and p.grad.any() for p in net.parameters())


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("name", CONDITIONAL)
def test_labels_matter(name, side):
    net = stirred(build(name, side, CLASSES))
    x, _ = inputs(net, CLASSES)
    outs = [all_of(call(net, x, torch.full((BATCH,), label))) for label in range(CLASSES)]
    assert all((a - b).abs().max() > 1e-4 for a, b in pairwise(outs))


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("name", CONDITIONAL)
def test_labels_that_do_not_fit_are_refused(name, side):
    net = build(name, side, CLASSES)
    x, y = inputs(net, CLASSES)
    for wrong in (None, y[:-1], y.double()):
        with pytest.raises(ParaganError, match=r"labels must be|labels are required"):
            call(net, x, wrong)
    with pytest.raises(IndexError):  # on the CPU; a range check would make a GPU wait
        call(net, x, y + CLASSES)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("name", CONDITIONAL)
def test_labelled_data_does_not_make_it_conditional(name, side):
    kind = getattr(registry.load_module("models", name), side)
    net = hold_updates(kind(options(name, conditional=False), SIZES[0], CLASSES).double())
    x, y = inputs(net, CLASSES)
    assert torch.equal(tensor_of(call(net, x)), tensor_of(call(net, x, y)))


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("name", CONDITIONAL)
def test_conditional_without_classes_is_refused(name, side):
    with pytest.raises(ConfigError, match=r"needs labels, but the data has none; pass model\.conditional=false"):
        getattr(registry.load_module("models", name), side)(options(name, conditional=True), SIZES[0], 0)
