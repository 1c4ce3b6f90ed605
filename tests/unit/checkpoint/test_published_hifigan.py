"""HiFi-GAN's files: our networks compute what plain modules with its names compute."""

import copy
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations, spectral_norm as old_spectral_norm, weight_norm as old_weight_norm

from paragan.checkpoint.layouts import published_weights
from paragan.checkpoint.layouts._names import plain_weights
from paragan.core.layout import StoredTensors, shapes_of
from paragan.layers.spectral_norm import spectral_norm
from paragan.models import hifigan
from tests.unit.checkpoint.published_files import assert_same, doubles, filled, named, randomised

pytestmark = [pytest.mark.usefixtures("doubles"), pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated")]
__all__ = ["doubles"]


class VocoderBlock(nn.Module):
    def __init__(self, width, kernel, dilations, norm, pairs):
        super().__init__()

        def convs(dilations):
            return nn.ModuleList(
                [norm(nn.Conv1d(width, width, kernel, dilation=d, padding=d * (kernel - 1) // 2)) for d in dilations]
            )

        if pairs:
            self.convs1, self.convs2 = convs(dilations), convs([1] * len(dilations))
        else:
            self.convs = convs(dilations)

    def forward(self, x):
        if hasattr(self, "convs"):
            for conv in self.convs:
                x = x + conv(F.leaky_relu(x, 0.1))
            return x
        for one, two in zip(self.convs1, self.convs2, strict=True):
            x = x + two(F.leaky_relu(one(F.leaky_relu(x, 0.1)), 0.1))
        return x


class Vocoder(nn.Module):
    def __init__(self, width, rates, blocks, norm, pairs):
        super().__init__()
        self.conv_pre = norm(nn.Conv1d(80, width, 7, padding=3))
        self.ups, self.resblocks, self.kernels = nn.ModuleList(), nn.ModuleList(), len(blocks)
        for rate in rates:
            self.ups.append(norm(nn.ConvTranspose1d(width, width // 2, 2 * rate, rate, rate // 2)))
            width //= 2
            self.resblocks.extend([VocoderBlock(width, kernel, ds, norm, pairs) for kernel, ds in blocks])
        self.conv_post = norm(nn.Conv1d(width, 1, 7, padding=3))

    def forward(self, x):
        x = self.conv_pre(x)
        for i, up in enumerate(self.ups):
            x = up(F.leaky_relu(x, 0.1))
            x = sum(self.resblocks[i * self.kernels + j](x) for j in range(self.kernels)) / self.kernels
        return torch.tanh(self.conv_post(F.leaky_relu(x)))


@pytest.mark.parametrize("norm", [old_weight_norm, parametrizations.weight_norm, lambda conv: conv])
@pytest.mark.parametrize("flavour", ["v1", "v3"])
def test_hifigan_g(tmp_path, norm, flavour):
    blocks = [(3, (1, 3, 5)), (7, (1, 3, 5)), (11, (1, 3, 5))]
    if flavour == "v3":
        blocks = [(3, (1, 2)), (5, (2, 6)), (7, (3, 12))]
    theirs = randomised(Vocoder(16, (8, 4), blocks, norm, pairs=flavour == "v1"))
    options = hifigan.Options(n_mels=80, width=16, rates=(8, 4), flavour=flavour)
    ours = hifigan.Generator(options, (1, 320))
    settings = filled(ours, theirs, folder=tmp_path, wrap=lambda state: {"generator": state})
    assert settings == {"name": "hifigan", "flavour": flavour, "width": 16, "n_mels": 80, "rates": (8, 4)}
    mel = torch.randn(2, 80, 9)
    assert_same(ours(mel), theirs(mel))


class Judge(nn.Module):
    """A discriminator of HiFi-GAN with these layers."""

    def __init__(self, convs, last, norm):
        super().__init__()
        self.convs = nn.ModuleList([norm(conv) for conv in convs])
        self.conv_post = norm(last)

    def forward(self, x):
        for conv in self.convs:
            x = F.leaky_relu(conv(x), 0.1)
        return self.conv_post(x).flatten(1)


def judge_of_a_period(norm):
    widths = (1, 32, 128, 512, 1024)
    convs = [nn.Conv2d(a, b, (5, 1), (3, 1), (2, 0)) for a, b in pairwise(widths)]
    return Judge(
        [*convs, nn.Conv2d(1024, 1024, (5, 1), padding=(2, 0))], nn.Conv2d(1024, 1, (3, 1), padding=(1, 0)), norm
    )


def judge_of_a_scale(norm):
    sizes = [(1, 128, 15, 1, 1), (128, 128, 41, 2, 4), (128, 256, 41, 2, 16), (256, 512, 41, 4, 16)]
    sizes += [(512, 1024, 41, 4, 16), (1024, 1024, 41, 1, 16), (1024, 1024, 5, 1, 1)]
    convs = [nn.Conv1d(a, b, k, stride, k // 2, groups=groups) for a, b, k, stride, groups in sizes]
    return Judge(convs, nn.Conv1d(1024, 1, 3, padding=1), norm)


@pytest.mark.slow
def test_hifigan_d(tmp_path):
    periods = nn.ModuleList([judge_of_a_period(old_weight_norm) for _ in range(5)])
    scales = nn.ModuleList([judge_of_a_scale(norm) for norm in (old_spectral_norm, old_weight_norm, old_weight_norm)])
    theirs = named(mpd=named(discriminators=periods), msd=named(discriminators=scales)).eval()
    ours = hifigan.Discriminator(hifigan.Options(flavour="v1"), (1, 640))
    optimizer = torch.optim.AdamW(periods[0].parameters()).state_dict()

    def wrap(state):
        return {
            "mpd": {k[4:]: v for k, v in state.items() if k[:3] == "mpd"},
            "msd": {k[4:]: v for k, v in state.items() if k[:3] == "msd"},
            **{"optim_g": optimizer, "steps": 2_500_000},
        }

    assert filled(ours, theirs, folder=tmp_path, wrap=wrap) == {"name": "hifigan", "flavour": "v1 or v3"}
    audio = torch.randn(2, 1, 641)
    outputs = ours(audio)
    for period, judge, (logits, _) in zip((2, 3, 5, 7, 11), periods, outputs["mpd"], strict=True):
        padded = F.pad(audio, (0, -641 % period), mode="reflect")
        torch.testing.assert_close(logits, judge(padded.view(2, 1, -1, period)), rtol=0, atol=1e-10)
    for judge, (logits, _) in zip(scales, outputs["msd"], strict=True):
        torch.testing.assert_close(logits, judge(audio), rtol=0, atol=1e-10)
        audio = F.avg_pool1d(audio, 4, 2, 2)


@pytest.mark.parametrize("norm", [old_spectral_norm, parametrizations.spectral_norm])
@pytest.mark.parametrize("layer", [nn.Conv1d(3, 4, 5), nn.ConvTranspose2d(3, 4, 3), nn.Linear(3, 4, bias=False)])
def test_spectral_norm_in_either_form_of_torch_divides_by_the_same_here(norm, layer):
    theirs = randomised(nn.Sequential(norm(copy.deepcopy(layer).double())))
    ours = nn.Sequential(spectral_norm(copy.deepcopy(layer).double())).eval()
    ours.load_state_dict(plain_weights({f"module.{name}": value for name, value in theirs.state_dict().items()}))
    x = torch.randn(2, 3, *[7] * (layer.weight.dim() - 2))
    torch.testing.assert_close(ours(x), theirs(x), rtol=0, atol=1e-12)


def test_a_network_that_has_the_names_itself_gets_them_unchanged():
    blocks = [(3, (1, 2)), (5, (2, 6)), (7, (3, 12))]
    theirs = Vocoder(8, (4,), blocks, old_weight_norm, pairs=False)
    stored = StoredTensors.of(theirs.state_dict())
    ours = hifigan.Generator(hifigan.Options(n_mels=80, width=64, rates=(4,)), (1, 16))
    assert published_weights(stored, shapes_of(ours.state_dict())) is not None  # few of its weights fit
    assert published_weights(stored, shapes_of(theirs.state_dict())) is None
    assert published_weights(stored, {"other": (1,)}) is None
    fewer = Vocoder(8, (4,), blocks[:2], old_weight_norm, pairs=False)  # not of the paper: other functions here
    assert published_weights(StoredTensors.of(fewer.state_dict()), shapes_of(ours.state_dict())) is None
    assert published_weights(StoredTensors.of({"body.weight": torch.zeros(2)}), {"other": (1,)}) is None


@pytest.mark.parametrize(
    "state",
    [
        {"conv_pre.weight": torch.zeros(3), "ups.0.weight": torch.zeros(())},
        {"conv_pre.weight_g": torch.zeros(3), "conv_pre.weight_v": torch.zeros(())},
        {"model.model.0.weight": torch.zeros(())},
        {"model.0.weight": torch.zeros(2, 2)},
        {"model.1.weight": torch.zeros(2, 2), "model.2.weight": torch.zeros(4)},
        {"blocks.0.0.conv1.weight": torch.zeros(2), "blocks.0.0.conv1.u0": torch.zeros(5)},
        {"blocks.0.0.conv1.u0": torch.zeros(5)},
        {"model.1.weight": torch.zeros(()), "model.2.weight": torch.zeros(4)},
        {"blocks.0.0.conv2d1.bias": torch.zeros(())},
        {"blocks.0.0.conv2d1.bias": torch.zeros(4), "linear0.bias": torch.zeros(4), "bn4.weight": torch.zeros(())},
    ],
)
def test_known_names_with_other_shapes_are_other_weights(state):
    assert published_weights(StoredTensors.of(state), {"blocks.0.conv.weight": (4, 3, 4, 4)}) is None
