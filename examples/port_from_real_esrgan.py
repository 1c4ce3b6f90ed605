"""Real-ESRGAN's second stage (Wang et al. 2021) by hand, and with paragan: equal weights in float64, a quarter as long.

    python examples/port_from_real_esrgan.py

Prints the largest difference of any averaged weight of G.
"""

import copy
import itertools
import math
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import nn

import paragan as pg

BATCH, STEPS, SAVE, BETAS, DECAY = 8, 20, 5, (0.9, 0.99), 0.9


def by_hand(generator, discriminator, vgg, batches, folder):
    generator.load_state_dict(load_file(folder / "first_stage.safetensors"))
    average = copy.deepcopy(generator).requires_grad_(False)
    vgg = copy.deepcopy(vgg).requires_grad_(False).eval()
    optim_g = torch.optim.Adam(generator.parameters(), 1e-3, betas=BETAS)
    optim_d = torch.optim.Adam(discriminator.parameters(), 1e-3, betas=BETAS)
    parts = {"g": generator, "d": discriminator, "average": average, "optim_g": optim_g, "optim_d": optim_d}
    first = max((int(path.stem) for path in folder.glob("*.pt")), default=0)
    if first:
        state = torch.load(folder / f"{first}.pt", weights_only=True)
        for name, part in parts.items():
            part.load_state_dict(state[name])
    for step, (low, high) in enumerate(itertools.islice(batches, first, STEPS), first + 1):
        made = generator(low)
        on_real, on_fake = discriminator(high), discriminator(made.detach())
        loss_real = F.binary_cross_entropy_with_logits(on_real, torch.ones_like(on_real))
        loss_fake = F.binary_cross_entropy_with_logits(on_fake, torch.zeros_like(on_fake))
        optim_d.zero_grad()
        (loss_real + loss_fake).backward()
        optim_d.step()
        discriminator.requires_grad_(False)
        on_fake = discriminator(made)
        loss_pixel, loss_features = F.l1_loss(made, high), F.l1_loss(vgg(made), vgg(high))
        loss_adversarial = F.binary_cross_entropy_with_logits(on_fake, torch.ones_like(on_fake))
        optim_g.zero_grad()
        (loss_pixel + loss_features + 0.1 * loss_adversarial).backward()
        optim_g.step()
        discriminator.requires_grad_(True)
        with torch.no_grad():
            for mine, theirs in zip(average.parameters(), generator.parameters(), strict=True):
                mine.lerp_(theirs, 1 - DECAY)
        if step % SAVE == 0:
            print(f"step {step}: pixel {loss_pixel:.3f}, features {loss_features:.3f}, G {loss_adversarial:.3f}")
            torch.save({name: part.state_dict() for name, part in parts.items()}, folder / f"{step}.pt")
    return average


def ported(generator, discriminator, vgg, data, folder):
    adam = {"name": "Adam", "lr": 1e-3, "arguments": {"betas": list(BETAS)}}
    settings = {"train.batch": BATCH, "train.kimg": BATCH * STEPS / 1000, "every.save_kimg": BATCH * SAVE / 1000}
    settings |= {"g.optimizer": adam, "d.optimizer": adam, "g.precision": "fp32", "d.precision": "fp32"}
    settings |= {"g.init": {"path": str(folder / "first_stage.safetensors")}, "adversarial.weight": 0.1}
    settings["g.ema.half_life_kimg"] = BATCH / 1000 * math.log(0.5) / math.log(DECAY)
    pixel = pg.Term(name="pixel", function=lambda outputs, inputs: (outputs.images - inputs.real_sample).abs())
    how = {"terms": [pixel, pg.PerceptualLoss(network=vgg)], "settings": settings, "sample": "high"}
    return pg.Trainer(generator, discriminator, data, loss="nonsaturating", out=folder / "run", **how).run()


class Upscaler(nn.Sequential):
    def forward(self, low):
        return super().forward(low)


def networks():
    torch.manual_seed(0)
    g = Upscaler(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 48, 3, padding=1), nn.PixelShuffle(4))
    d = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.LeakyReLU(0.2), nn.Conv2d(8, 1, 3, padding=1))
    vgg = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3))
    return g.double(), d.double(), vgg.double()


def main(folder):
    draws = torch.Generator().manual_seed(1)
    high = F.interpolate(torch.rand(40, 3, 4, 4, generator=draws).double(), size=16, mode="bilinear")
    first_stage = {name: 0.9 * weight for name, weight in networks()[0].state_dict().items()}
    save_file(first_stage, folder / "first_stage.safetensors")
    run = ported(*networks(), {"low": F.avg_pool2d(high, 4), "high": high}, folder)
    batches = pg.loading.TensorBatches(run.trainer.source, BATCH, seed=0)  # the batches of that run
    nets = networks()
    average = by_hand(*nets, ((batch["low"], batch["high"]) for batch in batches), folder)
    return nets, average, run.generator


if __name__ == "__main__":
    nets, average, generator = main(Path(tempfile.mkdtemp()))
    old, new = average.state_dict(), generator.state_dict()
    print("largest difference:", max((old[name] - new[name]).abs().max().item() for name in old))
