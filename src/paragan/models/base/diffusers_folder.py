"""Generators from folders in diffusers' format. Nothing is unpickled or downloaded."""

import re
from pathlib import Path
from typing import Any, Literal

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from paragan.core.errors import ConfigError
from paragan.core.files import read_json_file

_UNET = "UNet2DModel"
_VAE = "AutoencoderKL"
_Predicts = Literal["velocity", "sample"]
_WEIGHTS = re.compile(r"diffusion_pytorch_model(-\d{5}-of-\d{5})?\.safetensors")  # not of another precision


class DiffusersGenerator(nn.Module):
    """G(z) of a network of diffusers: one step of a U-Net from noise, or the decoder of a VAE.

    network: `UNet2DModel`, called with noise of its sample size, or `AutoencoderKL`. predicts, timestep: of a U-Net;
    G(z) is z - network(z, timestep) for `velocity` (flow matching), network(z, timestep) for `sample`.
    `run.generator.network.save_pretrained(FOLDER)` writes the trained network, with its adapters merged.
    """

    def __init__(self, network: Any, predicts: _Predicts = "velocity", timestep: float = 999) -> None:
        super().__init__()
        self.network = network
        self.predicts = predicts
        self.timestep = timestep
        config = network.config
        self.is_vae = config["_class_name"] == _VAE
        channels = config["latent_channels"] if self.is_vae else config["in_channels"]
        halvings = len(config["block_out_channels"]) - 1 if self.is_vae else 0
        size = config["sample_size"]
        height, width = (size, size) if isinstance(size, int) else size
        self.shape = (channels, height >> halvings, width >> halvings)
        self.latent = channels * self.shape[1] * self.shape[2]

    def forward(self, latent: Tensor) -> Tensor:
        z = latent.view(-1, *self.shape)
        if self.is_vae:
            return self.network.decode(z, return_dict=False)[0]
        output: Tensor = self.network(z, self.timestep, return_dict=False)[0]
        return z - output if self.predicts == "velocity" else output


def load_diffusers(folder: str | Path, predicts: _Predicts = "velocity", timestep: float = 999) -> DiffusersGenerator:
    """Load an unconditional U-Net (`UNet2DModel`) or a VAE (`AutoencoderKL`) as a generator for `paragan.Trainer`.

    Needs the package diffusers (`paragan[diffusers]`). Arguments as of `DiffusersGenerator`. Raises
    `ConfigError` for another network, and for files that are missing, pickled or do not fit.
    """
    folder = Path(folder)
    try:
        import diffusers
    except ImportError as error:
        raise ConfigError(f"load_diffusers needs the package diffusers ({error}); install paragan[diffusers]") from None
    config = _config(folder)
    try:
        network = getattr(diffusers, config["_class_name"]).from_config(config)
    except (TypeError, ValueError, KeyError) as error:
        raise ConfigError(f"{folder / 'config.json'} is not one of {config['_class_name']} ({_line(error)})") from None
    _load_weights(network, folder)
    return DiffusersGenerator(network.train(), predicts, timestep)


def _config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    try:
        config = read_json_file(path, dict)
        name = config["_class_name"]
    except (OSError, ValueError, KeyError) as error:
        problem = f"{path} cannot be read as a network's config ({type(error).__name__}: {_line(error)})"
        raise ConfigError(f"{problem}; give the folder that `save_pretrained` wrote") from None
    if name not in (_UNET, _VAE):
        raise ConfigError(
            f"{path}: {str(name)[:60]} is not supported, only {_UNET} and {_VAE}; for others pass a module "
            "whose forward names its inputs to paragan.Trainer"
        )
    size = config.get("sample_size")
    sides = size if isinstance(size, list) else [size, size]
    problem = "sample_size is missing" if size is None else ""
    if not problem and (len(sides) != 2 or not all(isinstance(side, int) and side > 0 for side in sides)):
        problem = f"sample_size is {str(size)[:60]}, neither a side nor two"
    if name == _UNET and (config.get("num_class_embeds") or config.get("class_embed_type")):
        problem = "it takes class labels"
    if problem:
        raise ConfigError(f"{path}: {problem}; pass a module around the network to paragan.Trainer instead")
    return config


def _load_weights(network: nn.Module, folder: Path) -> None:
    paths = sorted(path for path in folder.glob("*.safetensors") if _WEIGHTS.fullmatch(path.name) and path.is_file())
    if not paths:
        raise ConfigError(
            f"{folder} has no diffusion_pytorch_model.safetensors; save the network with safe_serialization=True"
        )
    weights: dict[str, Tensor] = {}
    try:
        for path in paths:
            weights |= load_file(path)
        network.load_state_dict(weights)
    except (SafetensorError, OSError, RuntimeError, ValueError) as error:
        raise ConfigError(
            f"{folder}: the weights do not fit config.json, or are damaged ({_line(error)}); save it again"
        ) from None


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:120]
