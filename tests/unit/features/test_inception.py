"""The Inception network of the FID: published facts, and a forward written out by hand."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from paragan.features._inception_network import TENSORFLOW, TORCHVISION, InceptionNetwork, resize_like_tensorflow

VARIANTS = {"tensorflow": TENSORFLOW, "torchvision": TORCHVISION}

# (C, H, W) to the shape of the convolution's weight: some of the public file's 94 convolutions
SHAPES = {
    "Conv2d_1a_3x3.conv.weight": (32, 3, 3, 3),
    "Conv2d_4a_3x3.conv.weight": (192, 80, 3, 3),
    "Mixed_5b.branch_pool.conv.weight": (32, 192, 1, 1),
    "Mixed_5d.branch5x5_2.conv.weight": (64, 48, 5, 5),
    "Mixed_6a.branch3x3dbl_3.conv.weight": (96, 96, 3, 3),
    "Mixed_6b.branch7x7_2.conv.weight": (128, 128, 1, 7),
    "Mixed_6e.branch7x7dbl_5.conv.weight": (192, 192, 1, 7),
    "Mixed_7a.branch7x7x3_3.conv.weight": (192, 192, 7, 1),
    "Mixed_7c.branch3x3dbl_3b.conv.weight": (384, 384, 3, 1),
    "Mixed_7c.branch_pool.bn.running_var": (192,),
}


@pytest.fixture(scope="module", params=VARIANTS)
def variant(request):
    return request.param


@pytest.fixture(scope="module")
def network(variant):
    """The network with random weights of a size that keeps its activations near 1."""
    network = InceptionNetwork(VARIANTS[variant]).double().eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, tensor in network.state_dict().items():
            if name.endswith(("conv.weight", "fc.weight")):
                tensor.normal_(0, (2 / tensor[0].numel()) ** 0.5, generator=generator)
            elif name.endswith(("running_var", "bn.weight")):
                tensor.uniform_(0.5, 1.5, generator=generator)
            elif tensor.is_floating_point():
                tensor.normal_(0, 0.1, generator=generator)
    return network


def test_inception_has_the_published_parameters(network, variant):
    shapes = {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}
    num_classes = 1008 if variant == "tensorflow" else 1000
    expected = {**SHAPES, "fc.weight": (num_classes, 2048), "fc.bias": (num_classes,)}
    assert {name: shapes[name] for name in expected} == expected
    assert sum(name.endswith("conv.weight") for name in shapes) == 94
    # torchvision's inception_v3 has 23,834,568 without its auxiliary classifier
    assert sum(parameter.numel() for parameter in network.parameters()) == 23_834_568 + (num_classes - 1000) * 2049


def by_hand(weights, pixels, variant):
    """The graph of `inception_v3`, by functions of torch alone."""
    is_tensorflow = variant == "tensorflow"

    def conv(name, h, stride=1, padding=0):
        h = F.conv2d(h, weights[f"{name}.conv.weight"], stride=stride, padding=padding)
        mean, var, gain, bias = (
            weights[f"{name}.bn.{part}"][:, None, None] for part in ("running_mean", "running_var", "weight", "bias")
        )
        return ((h - mean) / (var + 0.001).sqrt() * gain + bias).relu()

    def chain(h, *steps):
        for name, stride, padding in steps:
            h = conv(name, h, stride, padding)
        return h

    def average(h):
        ones = torch.ones_like(h[:1, :1])
        channels = h.shape[1]
        box = torch.ones(1, 1, 3, 3, dtype=h.dtype)
        total = F.conv2d(h, box.expand(channels, 1, 3, 3), padding=1, groups=channels)
        return total / F.conv2d(ones, box, padding=1) if is_tensorflow else total / 9

    def block_a(name, h):
        return [
            conv(f"{name}.branch1x1", h),
            chain(h, (f"{name}.branch5x5_1", 1, 0), (f"{name}.branch5x5_2", 1, 2)),
            chain(h, *((f"{name}.branch3x3dbl_{i}", 1, min(i - 1, 1)) for i in (1, 2, 3))),
            conv(f"{name}.branch_pool", average(h)),
        ]

    def block_c(name, h):
        across, down = (0, 3), (3, 0)
        single = zip((1, 2, 3), (0, across, down), strict=True)
        double = zip((1, 2, 3, 4, 5), (0, down, across, down, across), strict=True)
        return [
            conv(f"{name}.branch1x1", h),
            chain(h, *((f"{name}.branch7x7_{i}", 1, padding) for i, padding in single)),
            chain(h, *((f"{name}.branch7x7dbl_{i}", 1, padding) for i, padding in double)),
            conv(f"{name}.branch_pool", average(h)),
        ]

    def block_e(name, h, pooled):
        one = conv(f"{name}.branch3x3_1", h)
        two = chain(h, (f"{name}.branch3x3dbl_1", 1, 0), (f"{name}.branch3x3dbl_2", 1, 1))
        return [
            conv(f"{name}.branch1x1", h),
            conv(f"{name}.branch3x3_2a", one, padding=(0, 1)),
            conv(f"{name}.branch3x3_2b", one, padding=(1, 0)),
            conv(f"{name}.branch3x3dbl_3a", two, padding=(0, 1)),
            conv(f"{name}.branch3x3dbl_3b", two, padding=(1, 0)),
            conv(f"{name}.branch_pool", pooled),
        ]

    h = (pixels - 128) / 128 if is_tensorflow else pixels / 127.5 - 1
    h = chain(h, ("Conv2d_1a_3x3", 2, 0), ("Conv2d_2a_3x3", 1, 0), ("Conv2d_2b_3x3", 1, 1))
    h = chain(F.max_pool2d(h, 3, 2), ("Conv2d_3b_1x1", 1, 0), ("Conv2d_4a_3x3", 1, 0))
    h = F.max_pool2d(h, 3, 2)
    for name in ("Mixed_5b", "Mixed_5c", "Mixed_5d"):
        h = torch.cat(block_a(name, h), 1)
    steps = [("Mixed_6a.branch3x3dbl_1", 1, 0), ("Mixed_6a.branch3x3dbl_2", 1, 1), ("Mixed_6a.branch3x3dbl_3", 2, 0)]
    h = torch.cat([conv("Mixed_6a.branch3x3", h, 2), chain(h, *steps), F.max_pool2d(h, 3, 2)], 1)
    for name in ("Mixed_6b", "Mixed_6c", "Mixed_6d", "Mixed_6e"):
        h = torch.cat(block_c(name, h), 1)
    first = chain(h, ("Mixed_7a.branch3x3_1", 1, 0), ("Mixed_7a.branch3x3_2", 2, 0))
    steps = [(1, 1, 0), (2, 1, (0, 3)), (3, 1, (3, 0)), (4, 2, 0)]
    second = chain(h, *((f"Mixed_7a.branch7x7x3_{i}", stride, padding) for i, stride, padding in steps))
    h = torch.cat([first, second, F.max_pool2d(h, 3, 2)], 1)
    h = torch.cat(block_e("Mixed_7b", h, average(h)), 1)
    h = torch.cat(block_e("Mixed_7c", h, F.max_pool2d(h, 3, 1, 1) if is_tensorflow else average(h)), 1)
    features = h.mean((2, 3))
    logits = features @ weights["fc.weight"].T
    return features, logits if is_tensorflow else logits + weights["fc.bias"]


def test_inception_equals_the_graph_by_hand(network, variant):
    pixels = torch.randint(256, (1, 3, 299, 299), generator=torch.Generator().manual_seed(1)).double()
    with torch.no_grad():
        features, logits = network(pixels / 127.5 - 1)
        expected_features, expected_logits = by_hand(network.state_dict(), pixels, variant)
    assert features.shape == (1, 2048)
    assert features.std() > 0.01
    torch.testing.assert_close(features, expected_features, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(logits, expected_logits, rtol=1e-9, atol=1e-9)


def test_inception_rounds_images_to_8_bits_and_repeats_one_channel(network):
    x = torch.rand(1, 1, 28, 28, generator=torch.Generator().manual_seed(2)).double() * 2 - 1
    saved = ((x + 1) * 127.5).round() / 127.5 - 1
    with torch.no_grad():
        torch.testing.assert_close(network(x), network(saved.expand(1, 3, 28, 28)))


def resized_by_hand(image, size):
    """One channel by the formula of TensorFlow 1: no antialiasing, no half pixels."""
    height, width = image.shape
    out = np.empty((size, size))
    for i in range(size):
        for j in range(size):
            y, x = float(np.float32(i) * np.float32(height / size)), float(np.float32(j) * np.float32(width / size))
            top, left = math.floor(y), math.floor(x)
            bottom, right = min(top + 1, height - 1), min(left + 1, width - 1)
            upper = image[top, left] + (image[top, right] - image[top, left]) * (x - left)
            lower = image[bottom, left] + (image[bottom, right] - image[bottom, left]) * (x - left)
            out[i, j] = upper + (lower - upper) * (y - top)
    return out


def antialiased_by_hand(image, size):
    """One channel by a triangle at each output pixel's centre, as wide as a pixel of the coarser image."""

    def weights(inputs):
        scale = inputs / size
        width = max(scale, 1)
        centres = (torch.arange(size, dtype=torch.float64) + 0.5) * scale
        distance = (torch.arange(inputs, dtype=torch.float64) + 0.5 - centres[:, None]).abs()
        triangle = (1 - distance / width).clamp(min=0)
        return triangle / triangle.sum(1, keepdim=True)

    return weights(image.shape[0]) @ image @ weights(image.shape[1]).T


@pytest.mark.parametrize("size", [(32, 32), (299, 299), (400, 350), (700, 299)])
def test_torchvision_input_equals_the_triangle_filter(size):
    pixels = torch.randint(256, (1, 3, *size), generator=torch.Generator().manual_seed(4)).double()
    inputs = TORCHVISION.prepare(pixels)
    assert inputs.shape == (1, 3, 299, 299)
    expected = antialiased_by_hand(pixels[0, 1], 299) / 127.5 - 1
    torch.testing.assert_close(inputs[0, 1], expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("size", [(32, 32), (400, 350)])
def test_tensorflow_input_equals_the_resize_of_tensorflow_1(size):
    pixels = torch.randint(256, (1, 3, *size), generator=torch.Generator().manual_seed(5)).double()
    expected = (resized_by_hand(pixels[0, 2].numpy(), 299) - 128) / 128
    np.testing.assert_allclose(TENSORFLOW.prepare(pixels)[0, 2].numpy(), expected, atol=1e-9)


@pytest.mark.parametrize(("size", "output"), [(5, 13), (32, 299), (24, 10), (7, 7)])
def test_resize_equals_tensorflow_1(size, output):
    x = torch.rand(1, 1, size, size, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    expected = resized_by_hand(x[0, 0].numpy(), output)
    np.testing.assert_allclose(resize_like_tensorflow(x, output, output)[0, 0].numpy(), expected, atol=1e-12)
