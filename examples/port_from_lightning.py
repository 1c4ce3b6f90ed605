"""A GAN by Lightning's manual optimisation, and with paragan: equal weights in float64, in a fifth of the lines.

`ManualGAN` has the hooks of a `LightningModule`; `main` calls them, so that the example runs without Lightning.

    python examples/port_from_lightning.py
"""

import itertools
import tempfile

import torch
import torch.nn.functional as F
from torch import nn

import paragan as pg

BATCH, LATENT, STEPS, PARTS, CLIP, BETAS = 16, 4, 20, 2, 0.5, (0.5, 0.99)


class ManualGAN:  # LightningModule
    def __init__(self, generator, discriminator):
        self.generator, self.discriminator = generator, discriminator
        self.automatic_optimization = False

    def training_step(self, batch, latents):
        optim_g, optim_d = self.optimizers
        sched_g, sched_d = self.lr_schedulers
        made = self.generator(latents)
        for real, fake in zip(batch.chunk(PARTS), made.detach().chunk(PARTS), strict=True):
            on_real, on_fake = self.discriminator(real), self.discriminator(fake)
            loss_real = F.binary_cross_entropy_with_logits(on_real, torch.ones_like(on_real))
            loss_fake = F.binary_cross_entropy_with_logits(on_fake, torch.zeros_like(on_fake))
            loss_d = loss_real + loss_fake
            (loss_d / PARTS).backward()  # manual_backward
        nn.utils.clip_grad_norm_(self.discriminator.parameters(), CLIP)  # clip_gradients
        optim_d.step()
        optim_d.zero_grad()
        sched_d.step()
        self.discriminator.requires_grad_(False)  # toggle_optimizer
        for latent in latents.chunk(PARTS):
            on_fake = self.discriminator(self.generator(latent))
            loss_g = F.binary_cross_entropy_with_logits(on_fake, torch.ones_like(on_fake))
            (loss_g / PARTS).backward()
        nn.utils.clip_grad_norm_(self.generator.parameters(), CLIP)
        optim_g.step()
        optim_g.zero_grad()
        sched_g.step()
        self.discriminator.requires_grad_(True)
        self.logged = {"loss_d": loss_d.detach(), "loss_g": loss_g.detach()}  # log_dict

    def configure_optimizers(self):
        pair = (self.generator.parameters(), self.discriminator.parameters())
        self.optimizers = [torch.optim.Adam(weights, 2e-3, betas=BETAS) for weights in pair]
        decay = torch.optim.lr_scheduler.LambdaLR
        self.lr_schedulers = [decay(optim, lambda step: 1 - step / STEPS) for optim in self.optimizers]


def ported(generator, discriminator, data, folder):
    player = {"optimizer": {"name": "Adam", "lr": 2e-3, "arguments": {"betas": list(BETAS)}}, "precision": "fp32"}
    player |= {"schedule": {"name": "linear", "end": STEPS}, "micro_batches": PARTS, "max_norm": CLIP}
    settings = {"train.batch": BATCH, "train.kimg": BATCH * STEPS / 1000, "scheme": "shared_fakes"}
    settings |= {f"{side}.{key}": value for side in "gd" for key, value in player.items()}
    return pg.Trainer(generator, discriminator, data, loss="nonsaturating", settings=settings, out=folder).run()


class Generator(nn.Sequential):
    latent = LATENT

    def forward(self, z):
        return super().forward(z)


def networks():
    torch.manual_seed(0)
    g = Generator(nn.Linear(LATENT, 32), nn.ReLU(), nn.Linear(32, 2))
    return g.double(), nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 1), nn.Flatten(0)).double()


def drawn(run):
    """The batches of a run, with the latents of G's turns; in micro-batches, every second row is of the first."""
    source, prior = run.trainer.source, pg.Prior(seed=0, latent=LATENT, dtype=torch.float64)
    order = torch.cat([torch.arange(part, BATCH, PARTS) for part in range(PARTS)])
    for step, batch in enumerate(pg.loading.TensorBatches(source, BATCH, seed=0)):
        yield batch["point"][order], prior.draw("g", pg.Rows(step=step, first=0, count=BATCH, total=BATCH))[0][order]


def main(folder):
    angles = torch.rand(64, 1, generator=torch.Generator().manual_seed(1)).double() * 2 * torch.pi
    run = ported(*networks(), {"point": torch.cat([angles.cos(), angles.sin()], 1)}, folder)
    module = ManualGAN(*networks())
    module.configure_optimizers()  # what `fit` does
    for batch, latents in itertools.islice(drawn(run), STEPS):
        module.training_step(batch, latents)
    return module, run.generator


if __name__ == "__main__":
    module, generator = main(tempfile.mkdtemp())
    pairs = zip(module.generator.parameters(), generator.parameters(), strict=True)
    print("largest difference:", max((old - new).abs().max().item() for old, new in pairs))
