"""The recipe `codec`: its quantizer, its networks, a run of a config; and the distance of spectrograms of `vocoder`."""

import pytest
import torch

from paragan.config import read_recipe
from paragan.core.errors import ConfigError
from paragan.core.outputs import DiscriminatorOutput, Outputs
from paragan.core.protocols import PenaltyContext
from paragan.core.types import Batch, Rows, TurnInputs
from paragan.layers.log_mel import LogMel
from paragan.layers.vector_quantizer import ResidualQuantizer
from paragan.models import encodec
from paragan.penalties import log_mel
from tests.tiny_run import train_whole_and_in_parts

SMALL = {
    "model.width": 4,
    "data.utterances": 4,
    "data.segment": 1024,
    "train.batch": 2,
    "every.log_steps": 1,
    "every.sample_kimg": 0.004,
}


def test_run_resumes_to_the_same_weights(tmp_path):
    whole = train_whole_and_in_parts(tmp_path, "codec", SMALL, 0.012, 0.006)
    balanced = {"adversarial", "feature_matching_l1", "log_mel", "l1"}
    steps = whole.records("step")
    assert {f"g/balancer/{name}" for name in balanced} | {"g/loss/codebook"} <= steps[-1].keys()


@pytest.fixture
def quantizer():
    return ResidualQuantizer(codebooks=3, num_codes=5, width=4, depth=2).double()


def test_each_codebook_quantizes_what_those_before_it_left(quantizer):
    h = torch.randn(2, 4, 6, dtype=torch.float64)
    total, extra = quantizer(h)
    assert extra["tokens"].shape == (2, 3, 6) and extra["codebook"].shape == (2, 3, 6, 2)
    left = h
    for number, level in enumerate(quantizer.levels):
        codes, found = level.quantizer(level.to_codes(left))
        assert torch.equal(extra["tokens"][:, number], found["tokens"])
        left = left - level.from_codes(codes)
    torch.testing.assert_close(total, h - left, rtol=0, atol=1e-14)
    torch.testing.assert_close(quantizer.vectors(extra["tokens"]), total, rtol=0, atol=1e-14)


def test_losses_train_codes_and_projections_apart(quantizer):
    h = torch.randn(2, 4, 6, dtype=torch.float64, requires_grad=True)
    total, extra = quantizer(h)
    codes = quantizer.levels[0].quantizer.codes.weight
    inwards = quantizer.levels[0].to_codes.weight
    for loss, learns in ((total, [False, True]), (extra["codebook"][:, 0], [True, False])):
        grads = torch.autograd.grad(loss.square().sum(), [codes, inwards], retain_graph=True, allow_unused=True)
        assert [grad is not None for grad in grads] == learns


def test_generator_decodes_its_tokens():
    net = encodec.Generator(encodec.Options(width=4), (1, 512)).eval()
    audio = torch.randn(2, 1, 512).tanh()
    tokens = net.encode(audio)
    assert tokens.shape == (2, 4, 8) and tokens.max() < 256
    torch.testing.assert_close(net.decode(net.quantizer.vectors(tokens)), net(audio).images, rtol=0, atol=1e-5)
    assert net.decode(net.quantizer.vectors(tokens[:, :2])).shape == audio.shape


@pytest.mark.parametrize("rates", [(3,), (2, 5)])
def test_uneven_rates_give_audio_of_the_same_length(rates):
    net = encodec.Generator(encodec.Options(width=2, rates=rates), (1, 60))
    assert net(torch.zeros(2, 1, 60)).images.shape == (2, 1, 60)


@pytest.mark.parametrize("recipe", ["codec", "vocoder"])
@pytest.mark.parametrize(("rates", "place"), [("[2, 1]", 1), ("[1]", 0), ("[1, 2, 4]", 0)])
def test_rate_of_1_which_would_lengthen_audio_is_refused_by_its_key(recipe, rates, place):
    with pytest.raises(ConfigError, match=rf"model\.rates\.{place}: .*>= 2"):
        read_recipe(recipe, [f"model.rates={rates}"])


def test_discriminators_hear_a_tone_at_its_frequency():
    net = encodec.StftDiscriminator(window=64, width=2, channels=1)
    tone = torch.sin(2 * torch.pi * 8 / 64 * torch.arange(256))[None]
    spectrum = net._spectrogram(tone)
    assert spectrum.shape == (1, 2, 13, 33)  # real and imaginary part, frames, frequencies
    assert (spectrum.square().sum(1).argmax(-1) == 8).all()
    logits, features = net(tone[:, None])
    assert logits.shape == (1, 13 * 5) and len(features) == 5


def test_log_mel_penalty_is_the_distance_of_spectrograms():
    fake, real = (torch.randn(3, 1, 512, requires_grad=True) * 0.1 for _ in range(2))
    made = log_mel.Penalty(log_mel.Options(weight=2.0))
    rows = Rows(step=0, first=0, count=3, total=3)
    feed = TurnInputs(rows=rows, seed=0, real=Batch(rows, {"audio": real}), discriminator_arguments=("audio",))
    outputs = Outputs(fake=DiscriminatorOutput(torch.zeros(3)), images=fake)
    found = made(PenaltyContext(network=None, feed=feed, outputs=outputs, input_gradient=None))
    mel = LogMel(8000, 256, 64, 40)
    expected = 2 * (mel(fake) - mel(real)).abs().mean((1, 2))
    torch.testing.assert_close(found, expected)
