"""Generators from folders in diffusers' format; needs the package, except for what is refused without it."""

import importlib.util
import json
import sys
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import paragan as pg
from paragan.core.errors import ConfigError

needs_diffusers = pytest.mark.skipif(importlib.util.find_spec("diffusers") is None, reason="diffusers is not installed")
SIZES = {"block_out_channels": (8, 8), "norm_num_groups": 4, "sample_size": 8}


def save_unet(folder):
    import diffusers

    torch.manual_seed(0)
    blocks = {"down_block_types": ("DownBlock2D", "AttnDownBlock2D"), "up_block_types": ("AttnUpBlock2D", "UpBlock2D")}
    net = diffusers.UNet2DModel(
        in_channels=1, out_channels=1, layers_per_block=1, attention_head_dim=4, **SIZES, **blocks
    )
    net.save_pretrained(folder)
    return net


def save_vae(folder):
    import diffusers

    torch.manual_seed(0)
    blocks = {"down_block_types": ("DownEncoderBlock2D",) * 2, "up_block_types": ("UpDecoderBlock2D",) * 2}
    net = diffusers.AutoencoderKL(in_channels=1, out_channels=1, latent_channels=2, **SIZES, **blocks)
    net.save_pretrained(folder)
    return net


class Discriminator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(1, 8, 4, 2, 1), nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(128, 1))

    def forward(self, image):
        return self.layers(image).squeeze(1)


def trainer(folder, out, **settings):
    torch.manual_seed(0)
    net = pg.load_diffusers(folder)
    images = torch.randn(64, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    chosen = {"name": "lora", "match": ["network.*.to_?.weight", "network.*.conv*.weight"]}
    values = {"train.batch": 8, "train.kimg": 0.064, "every.save_kimg": 0.032, "g.adapter": chosen, **settings}
    return pg.Trainer(net, Discriminator(), {"image": images}, settings=values, out=out)


@needs_diffusers
def test_unet_is_one_step_from_noise(tmp_path):
    net = save_unet(tmp_path).eval()
    z = torch.randn(2, 64)
    x = z.view(2, 1, 8, 8)
    assert pg.load_diffusers(tmp_path).latent == 64
    assert torch.equal(pg.load_diffusers(tmp_path).eval()(z), x - net(x, 999).sample)
    assert torch.equal(pg.load_diffusers(tmp_path, "sample", 500).eval()(z), net(x, 500).sample)


@needs_diffusers
def test_vae_is_its_decoder(tmp_path):
    net = save_vae(tmp_path).eval()
    z = torch.randn(3, 2 * 4 * 4)
    g = pg.load_diffusers(tmp_path).eval()
    assert g.latent == 32 and torch.equal(g(z), net.decode(z.view(3, 2, 4, 4)).sample)


@needs_diffusers
def test_unet_with_adapters_trains_resumes_and_is_saved_in_the_format_of_diffusers(tmp_path):
    net = save_unet(tmp_path / "unet").eval()
    trainer(tmp_path / "unet", tmp_path / "stopped", **{"train.kimg": 0.032}).run()
    runs = [trainer(tmp_path / "unet", tmp_path / name).run() for name in ("whole", "stopped")]
    whole, stopped = (run.generator.state_dict() for run in runs)
    assert whole.keys() == {f"network.{name}" for name in net.state_dict()}
    assert [name for name in whole if not torch.equal(whole[name], stopped[name])] == []
    changed = {name for name, value in net.state_dict().items() if not torch.equal(value, whole[f"network.{name}"])}
    assert "down_blocks.0.resnets.0.conv1.weight" in changed and "time_embedding.linear_1.weight" not in changed
    (tensors,) = sorted(tmp_path.glob("whole/checkpoints/*/g.safetensors"))[-1:]
    stored = load_file(tensors).keys()
    assert all(".weight.0." in name or name == "player/updates" for name in stored)
    runs[0].generator.network.save_pretrained(tmp_path / "merged")
    z = torch.randn(2, 64)
    assert torch.equal(pg.load_diffusers(tmp_path / "merged").eval()(z), runs[0].generator(z))


@needs_diffusers
def test_run_on_another_folder_is_refused(tmp_path):
    save_unet(tmp_path / "unet")
    trainer(tmp_path / "unet", tmp_path / "run").run()
    net = save_unet(tmp_path / "unet")
    with torch.no_grad():
        net.conv_in.weight.mul_(1.001)
    net.save_pretrained(tmp_path / "unet")
    with pytest.raises(pg.CheckpointError, match="g was trained on other base weights"):
        trainer(tmp_path / "unet", tmp_path / "run", **{"train.kimg": 0.096}).run()


@needs_diffusers
def test_folder_that_does_not_fit_is_refused_in_one_line(tmp_path):
    save_unet(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())

    def refused(match, **changed):
        (tmp_path / "config.json").write_text(json.dumps({**config, **changed}))
        with pytest.raises(ConfigError, match=match) as error:
            pg.load_diffusers(tmp_path)
        assert "\n" not in str(error.value)

    refused("UNet2DConditionModel is not supported", _class_name="UNet2DConditionModel")
    refused("sample_size is missing", sample_size=None)
    refused("it takes class labels", num_class_embeds=3)
    refused("do not fit config.json", block_out_channels=[8, 16])
    refused("config.json is not one of UNet2DModel", block_out_channels=[8])
    weights = tmp_path / "diffusion_pytorch_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    refused("or are damaged")
    weights.rename(tmp_path / "diffusion_pytorch_model.bin")
    refused("has no diffusion_pytorch_model.safetensors")
    (tmp_path / "config.json").unlink()
    with pytest.raises(ConfigError, match="cannot be read as a network's config"):
        pg.load_diffusers(tmp_path)


def test_load_without_the_package_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "diffusers", None)
    with pytest.raises(ConfigError, match=r"install paragan\[diffusers\]"):
        pg.load_diffusers(tmp_path)


@pytest.mark.parametrize("size", ["8", [8], [8, 8, 8], 8.5, 0, [8, "8"], {"height": 8}])
def test_sample_size_that_is_none_is_refused_in_one_line(tmp_path, monkeypatch, size):
    kind = SimpleNamespace(from_config=lambda config: nn.Identity())
    monkeypatch.setitem(sys.modules, "diffusers", SimpleNamespace(UNet2DModel=kind))
    save_file({}, tmp_path / "diffusion_pytorch_model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"_class_name": "UNet2DModel", "sample_size": size}))
    with pytest.raises(ConfigError, match=r"sample_size is .*, neither a side nor two") as error:
        pg.load_diffusers(tmp_path)
    assert "\n" not in str(error.value)


@pytest.mark.skipif(importlib.util.find_spec("peft") is None, reason="peft is not installed")
def test_adapters_of_peft_train_by_a_pattern(tmp_path):
    import peft

    class Generator(nn.Module):
        latent = 4

        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 64))

        def forward(self, latent):
            return self.layers(latent).view(-1, 1, 8, 8)

    torch.manual_seed(0)
    net = peft.inject_adapter_in_model(peft.LoraConfig(r=2, target_modules=["0", "2"]), Generator())
    base = {name: value.clone() for name, value in net.state_dict().items() if "lora_" not in name}
    settings = {"train.batch": 8, "train.kimg": 0.032, "g.train": ["*.lora_*"]}
    run = pg.Trainer(
        net, Discriminator(), {"image": torch.randn(32, 1, 8, 8)}, settings=settings, out=tmp_path / "run"
    ).run()
    trained = run.generator.state_dict()
    assert trained.keys() == net.state_dict().keys()
    assert all(torch.equal(trained[name], value) for name, value in base.items())
    assert trained["layers.2.lora_B.default.weight"].abs().max() > 0
