"""`lightweight-gan` and `stylegan2-pytorch` on a folder, by their own code and defaults, for a limit of CPU time.

`pip install --no-deps --target SITE lightweight-gan==1.2.1 stylegan2-pytorch==1.9.0 kornia==0.7.4 kornia-rs einops
vector-quantize-pytorch einx adabelief-pytorch retry fire decorator py termcolor tabulate colorama loguru frozendict
torch-einops-utils`, then
`PYTHONPATH=SITE python -m benchmarks.own_peers PEER FOLDER OUT --size 64`.

Both demand CUDA; here `cuda()` leaves tensors where they are. torchvision, of which they use six transforms of PIL
images and the writing of sheets, is stood in for by Pillow: the same resize, crop and scale to [0, 1]. They draw no
sheets while they train, since this time is not training, and `aim`, a logger that is off, is not imported.
"""

import math
import random
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import numpy as np
import torch
import typer
from PIL import Image

from benchmarks.command import run_command

BATCH = 50  # samples drawn at a time
app = typer.Typer(add_completion=False)


@app.command()
def main(
    peer: str,
    folder: Path,
    out: Path,
    size: Annotated[int, typer.Option(help="Pixels.")] = 64,
    seed: int = 0,
    cpu_s: float = 480,
    num: Annotated[int, typer.Option(help="Samples to write below OUT.")] = 1000,
) -> None:
    """Train PEER (lightweight_gan or stylegan2_pytorch) on FOLDER and write samples of its generator below OUT."""
    torch.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)
    torch.set_num_threads(1)
    _stand_in_for_torchvision()
    _keep_on_cpu()
    trainer, sample = PEERS[peer](_with_plain_suffixes(folder, out / "images"), out / "work", size)
    trainer.evaluate = lambda *_, **__: None
    steps = 0
    while time.process_time() < cpu_s:
        trainer.train()
        steps += 1
    images = out / "samples"
    images.mkdir(parents=True, exist_ok=True)
    with torch.no_grad():
        for start in range(0, num, BATCH):
            for number, image in enumerate(sample(trainer, BATCH), start=start):
                _to_pil(image).save(images / f"{number:05}.png")
    seen = steps * trainer.batch_size * trainer.gradient_accumulate_every
    print(f"{peer}: {steps} steps, {seen / 1000:.1f} kimg, {time.process_time():.0f} s of CPU with {num} samples")


def _with_plain_suffixes(folder: Path, links: Path) -> Path:
    """Return a folder of links to its images, since the peers read .JPEG only as .jpeg."""
    for number, path in enumerate(sorted(path for path in folder.rglob("*") if path.is_file())):
        links.mkdir(parents=True, exist_ok=True)
        (links / f"{number:06}{path.suffix.lower()}").symlink_to(path.resolve())
    return links


Sampler = Callable[[Any, int], torch.Tensor]


def _lightweight_gan(folder: Path, work: Path, size: int) -> tuple[Any, Sampler]:
    import lightweight_gan.lightweight_gan as peer

    peer.torch = _cpu_torch()
    settings = {"attn_res_layers": [32], "disc_output_size": 1, "aug_types": ["cutout", "translation"]}
    trainer = peer.Trainer(
        base_dir=work,
        image_size=size,
        batch_size=10,
        gradient_accumulate_every=4,
        num_workers=0,
        use_aim=False,
        **settings,
    )
    trainer.set_data_src(str(folder))

    def sample(trainer: Any, num: int) -> torch.Tensor:
        generator = trainer.GAN.G.eval()  # its average starts at step 20,000
        images: torch.Tensor = generator(torch.randn(num, trainer.latent_dim)).clamp(0, 1)
        return images

    return trainer, sample


def _stylegan2_pytorch(folder: Path, work: Path, size: int) -> tuple[Any, Sampler]:
    import stylegan2_pytorch.stylegan2_pytorch as peer

    peer.torch = _cpu_torch()
    trainer = peer.Trainer(
        base_dir=work, image_size=size, network_capacity=16, batch_size=5, gradient_accumulate_every=6, lr_mlp=0.1,
        ttur_mult=1.5, num_workers=0, aug_types=["translation", "cutout"],
    )  # fmt: skip
    trainer.set_data_src(str(folder))

    def sample(trainer: Any, num: int) -> torch.Tensor:
        gan = trainer.GAN.eval()
        latents = [(torch.randn(num, gan.G.latent_dim), gan.G.num_layers)]
        noise = peer.image_noise(num, size, device=0)
        images: torch.Tensor = trainer.generate_truncated(gan.S, gan.G, latents, noise, trunc_psi=1.0)
        return images

    return trainer, sample


PEERS = {"lightweight_gan": _lightweight_gan, "stylegan2_pytorch": _stylegan2_pytorch}


class _CPUTorch(ModuleType):
    """torch, with `device("cuda:0")` the CPU."""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    @staticmethod
    def device(*_: object) -> torch.device:
        return torch.device("cpu")


def _cpu_torch() -> ModuleType:
    return _CPUTorch("torch")


def _keep_on_cpu() -> None:
    torch.cuda.is_available = lambda: True
    torch.Tensor.cuda = lambda self, *_, **__: self  # type: ignore[assignment,method-assign]
    torch.nn.Module.cuda = lambda self, *_, **__: self  # type: ignore[assignment,method-assign]


def _stand_in_for_torchvision() -> None:
    transforms = ModuleType("torchvision.transforms")
    functional = ModuleType("torchvision.transforms.functional")
    functional.resize = _resize  # type: ignore[attr-defined]
    for name, value in {
        "Compose": _compose,
        "Lambda": lambda function: function,
        "Resize": lambda size: lambda image: _resize(image, size),
        "CenterCrop": lambda size: lambda image: _centre_crop(image, size),
        "RandomResizedCrop": lambda *_, **__: None,  # with probability 0 by default
        "ToTensor": lambda: _to_tensor,
        "functional": functional,
    }.items():
        setattr(transforms, name, value)
    package = ModuleType("torchvision")
    utils = ModuleType("torchvision.utils")
    utils.save_image = lambda *_, **__: None  # type: ignore[attr-defined]  # no sheets: their time is not training
    package.transforms, package.utils = transforms, utils  # type: ignore[attr-defined]
    names = {"": package, ".transforms": transforms, ".transforms.functional": functional, ".utils": utils}
    sys.modules["aim"] = ModuleType("aim")
    sys.modules.update({f"torchvision{name}": module for name, module in names.items()})


def _compose(functions: Sequence[Callable[[Any], Any]]) -> Callable[[Any], Any]:
    def transform(image: Any) -> Any:
        for function in functions:
            image = function(image)
        return image

    return transform


def _resize(image: Image.Image, size: int) -> Image.Image:
    """Resize the shorter side to `size`, bilinear, as torchvision does."""
    scale = size / min(image.size)
    width, height = (max(size, math.floor(side * scale)) for side in image.size)
    return image.resize((width, height), Image.Resampling.BILINEAR)


def _centre_crop(image: Image.Image, size: int) -> Image.Image:
    left, top = round((image.width - size) / 2), round((image.height - size) / 2)
    return image.crop((left, top, left + size, top + size))


def _to_tensor(image: Image.Image) -> torch.Tensor:
    values = torch.from_numpy(np.array(image, np.uint8)).float() / 255
    return values.permute(2, 0, 1) if values.ndim == 3 else values[None]


def _to_pil(image: torch.Tensor) -> Image.Image:
    values = (image.clamp(0, 1) * 255).round().to(torch.uint8).permute(1, 2, 0).numpy()
    return Image.fromarray(values[..., 0] if values.shape[2] == 1 else values)


if __name__ == "__main__":
    sys.exit(run_command(app, "own_peers"))
