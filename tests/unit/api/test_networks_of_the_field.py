"""Networks and data as people have them: old-style hooks, complex weights, attention with R1, float64, NaN, noise."""

import warnings

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import paragan as pg
from paragan.core.errors import ConfigError
from tests.tiny_run import newest

SETTINGS = {
    "train.batch": 4, "train.kimg": 0.04, "every.save_kimg": 0.02, "every.log_steps": 1,
    "g.ema.half_life_kimg": 0.01, "g.max_norm": 1.0, "d.max_norm": 1.0,
}  # fmt: skip


class G(nn.Module):
    latent = 4

    def __init__(self, wrap=lambda layer: layer):
        super().__init__()
        self.first = wrap(nn.Linear(4, 8))
        self.last = wrap(nn.Linear(8, 6))

    def forward(self, latent):
        return self.last(F.silu(self.first(latent)))


class D(nn.Module):
    def __init__(self, wrap=lambda layer: layer):
        super().__init__()
        self.first = wrap(nn.Linear(6, 8))
        self.last = wrap(nn.Linear(8, 1))

    def forward(self, x):
        return self.last(F.silu(self.first(x))).squeeze(1)


class Spectral(nn.Module):
    """Multiplies a spectrum, as a Fourier neural operator does."""

    latent = 4

    def __init__(self, inputs=4, outputs=6):
        super().__init__()
        self.weight = nn.Parameter(0.3 * torch.randn(6, 4, dtype=torch.complex64))
        self.bias = nn.Parameter(torch.zeros(6))

    def forward(self, latent):
        return torch.fft.ifft(torch.fft.fft(latent) @ self.weight.T).real + self.bias


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(1, 8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.last = nn.Linear(8, 1)

    def forward(self, x):
        h = self.embed(x[:, :, None])
        return self.last(self.attention(h, h, h, need_weights=False)[0].mean(1)).squeeze(1)


class Noisy(G):
    def forward(self, latent):
        return super().forward(latent + 0.1 * torch.randn_like(latent))


class NoisyD(D):
    def forward(self, x):
        return super().forward(x + 0.1 * torch.randn_like(x))


def data(count=32, dtype=np.float32):
    return {"x": np.random.default_rng(0).normal(size=(count, 6)).astype(dtype)}


def trainer(g, d, folder, held=None, **settings):
    """A trainer of networks, or of classes of networks, which then have the same initial weights every time."""
    torch.manual_seed(0)
    g, d = (net() if isinstance(net, type) else net for net in (g, d))
    values = SETTINGS | {key.replace("__", "."): value for key, value in settings.items()}
    penalties = values.pop("terms", ())
    return pg.Trainer(g, d, held or data(), settings=values, terms=penalties, out=folder)


def weights(folder):
    return {path.name: path.read_bytes() for path in newest(folder).glob("*.safetensors")}


@pytest.mark.filterwarnings("ignore:.*weight_norm.*is deprecated:FutureWarning")
@pytest.mark.parametrize("strategy", ["none", "zero2"])
def test_old_style_weight_norm_trains_as_the_parametrisation(tmp_path, strategy):
    """HiFi-GAN, BigVGAN, EnCodec and DAC use it; a network that has been called cannot be copied by `deepcopy`."""
    found = {}
    for name, wrap in (("old", nn.utils.weight_norm), ("new", nn.utils.parametrizations.weight_norm)):
        torch.manual_seed(1)
        g, d = G(wrap), D(wrap)
        d(g(torch.randn(2, 4))).sum().backward()
        given = {key: value.clone() for key, value in g.state_dict().items()}
        run = trainer(g, d, tmp_path / name, g__strategy=strategy, d__strategy=strategy).run()
        assert all(torch.equal(value, given[key]) for key, value in g.state_dict().items())
        found[name] = run.generator(torch.ones(3, 4))
        g.load_state_dict(run.generator.state_dict())  # under the names that the user knows
        assert torch.equal(g(torch.ones(3, 4)), found[name])
    torch.testing.assert_close(found["old"], found["new"], rtol=1e-5, atol=1e-6)


@pytest.mark.filterwarnings("ignore:.*is deprecated:FutureWarning")
@pytest.mark.parametrize("scheme", ["shared_fakes", "extragradient", "asynchronous"])
def test_old_style_hooks_in_other_schemes(tmp_path, scheme):
    wrap = nn.utils.spectral_norm if scheme == "extragradient" else nn.utils.weight_norm
    assert trainer(G(wrap), D(wrap), tmp_path, scheme__name=scheme).run().is_finished


def test_complex_weights_train_clip_average_and_resume(tmp_path):
    whole = trainer(Spectral, D, tmp_path / "whole").run()
    trainer(Spectral, D, tmp_path / "parts", train__kimg=0.02).run()
    trainer(Spectral, D, tmp_path / "parts").run()
    assert weights(tmp_path / "whole") == weights(tmp_path / "parts") != {}
    torch.manual_seed(0)
    assert not torch.equal(whole.generator.weight, Spectral().weight)
    assert all(np.isfinite(line["g/gradient_norm"]) for line in whole.history if "g/gradient_norm" in line)


@pytest.mark.parametrize(
    ("term", "scheme"),
    [*((term, "synchronous") for term in ("r1", "gradient_penalty", "r2")), ("r1", "asynchronous")],
)
def test_attention_with_an_input_gradient(tmp_path, term, scheme):
    run = trainer(G(), Attention(), tmp_path, penalties=[{"name": term}], scheme__name=scheme).run()
    assert run.is_finished
    assert torch.backends.cuda.flash_sdp_enabled()


def test_wrapped_networks_are_refused_by_name(tmp_path):
    with pytest.raises(
        ConfigError, match="generator is a DataParallel; pass its attribute `module`, the network inside it"
    ):
        trainer(nn.DataParallel(G()), D(), tmp_path)
    with pytest.raises(ConfigError, match=r"discriminator was compiled by torch\.compile; pass the network"):
        trainer(G(), torch.compile(D()), tmp_path)


@pytest.mark.parametrize("generator", [nn.Sequential(nn.Linear(4, 6)), "noise"])
def test_the_only_argument_that_no_sample_has_is_the_latent(tmp_path, generator):
    class Noise(G):
        def forward(self, noise):
            return super().forward(noise)

    generator = Noise() if generator == "noise" else generator
    generator.latent = 4
    run = trainer(generator, D(), tmp_path).run()
    assert run.generator(torch.ones(3, 4)).shape == (3, 6)


@pytest.mark.parametrize(("g", "d"), [(Noisy, D), (G, NoisyD), (Noisy, NoisyD)])
def test_noise_in_forward_resumes_bit_for_bit(tmp_path, g, d):
    trainer(g, d, tmp_path / "whole").run()
    trainer(g, d, tmp_path / "parts", train__kimg=0.02).run()
    trainer(g, d, tmp_path / "parts").run()
    assert weights(tmp_path / "whole") == weights(tmp_path / "parts") != {}


class Dropping(D):
    def forward(self, x):
        return super().forward(F.dropout(x, 0.3, self.training))


@pytest.mark.filterwarnings("ignore:discriminator. forward.* changes drawn:UserWarning")
@pytest.mark.parametrize("d", [NoisyD, Dropping])
def test_asynchronous_threads_do_not_share_random_numbers(tmp_path, d, monkeypatch):
    """Each turn draws what its own seed gives, also while the other thread draws."""
    drawn = {side: [] for side in ("g", "d")}
    forward = d.forward

    def noted(self, x):
        before = torch.get_rng_state()
        output = forward(self, x)
        after = torch.get_rng_state()
        torch.set_rng_state(before)
        alone = forward(self, x)
        drawn["d"].append(torch.equal(output, alone))
        torch.set_rng_state(after)
        return output

    monkeypatch.setattr(d, "forward", noted)
    run = trainer(Noisy, d, tmp_path, scheme__name="asynchronous", train__kimg=0.4).run()
    assert run.is_finished and len(drawn["d"]) > 200 and all(drawn["d"])


def test_a_discriminator_that_ends_in_a_sigmoid_is_noticed(tmp_path):
    class Sigmoid(D):
        def forward(self, x):
            return super().forward(x).sigmoid()

    with pytest.warns(UserWarning, match="discriminator: forward.* ends in a sigmoid, softmax or clamp, and the"):
        trainer(G(), Sigmoid(), tmp_path / "a").run()
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        trainer(G(), D(), tmp_path / "b").run()


@pytest.mark.parametrize("make", [lambda x: (x, x), lambda x: {"x": x}, lambda x: [x]])
def test_several_outputs_name_what_to_return(tmp_path, make):
    class Several(G):
        def forward(self, latent):
            return make(super().forward(latent))

    with pytest.raises(ConfigError, match=r"or paragan\.GeneratorOutput\(sample, \{NAME: tensor\}\) for several"):
        trainer(Several(), D(), tmp_path).run()


@pytest.mark.parametrize("keep", [lambda y: y, lambda y: [y], lambda y: {"y": (y, 1)}], ids=["tensor", "list", "map"])
def test_a_network_that_keeps_its_last_output_is_copied(tmp_path, keep):
    class Keeping(G):
        def forward(self, latent):
            y = super().forward(latent)
            self.last_output = keep(y)
            return y

    g = Keeping()
    g(torch.ones(2, 4))
    assert trainer(g, D(), tmp_path).run().is_finished
