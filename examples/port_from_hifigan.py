"""HiFi-GAN's training loop (Kong et al. 2020) by hand, and with paragan: equal weights in float64, half as long.

python examples/port_from_hifigan.py    # prints the largest difference of any weight of G after a few seconds
"""

import itertools
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

import paragan as pg

LENGTH, HOP, BATCH, STEPS, SAVE, BETAS = 96, 12, 8, 20, 5, (0.8, 0.99)


def mel(wave):
    return (wave.unfold(-1, HOP, HOP).square().mean(-1) + 0.05).log()


def by_hand(generator, mpd, msd, batches, folder):
    optim_g = torch.optim.AdamW(generator.parameters(), 2e-3, betas=BETAS)
    optim_d = torch.optim.AdamW(itertools.chain(mpd.parameters(), msd.parameters()), 2e-3, betas=BETAS)
    parts = {"generator": generator, "mpd": mpd, "msd": msd, "optim_g": optim_g, "optim_d": optim_d}
    first = max((int(path.stem) for path in folder.glob("*.pt")), default=0)
    if first:
        state = torch.load(folder / f"{first}.pt", weights_only=True)
        for name, part in parts.items():
            part.load_state_dict(state[name])
    for step, (wave, frames) in enumerate(itertools.islice(batches, first, STEPS), first + 1):
        made = generator(frames)
        optim_d.zero_grad()
        loss_d = 0
        for d in (mpd, msd):
            for (on_real, _), (on_fake, _) in zip(d(wave), d(made.detach()), strict=True):
                loss_d = loss_d + ((1 - on_real) ** 2).mean() + (on_fake**2).mean()
        loss_d.backward()
        optim_d.step()
        optim_g.zero_grad()
        loss_mel, loss_adversarial, loss_features = F.l1_loss(mel(wave), mel(made)), 0, 0
        for d in (mpd, msd):
            for (_, real_maps), (on_fake, fake_maps) in zip(d(wave), d(made), strict=True):
                loss_adversarial = loss_adversarial + ((1 - on_fake) ** 2).mean()
                for real_map, fake_map in zip(real_maps, fake_maps, strict=True):
                    loss_features = loss_features + (real_map - fake_map).abs().mean()
        (loss_adversarial + 2 * loss_features + 45 * loss_mel).backward()
        optim_g.step()
        if step % SAVE == 0:
            print(f"step {step}: D {loss_d:.3f}, G {loss_adversarial:.3f}, mel {loss_mel:.3f}")
            torch.save({name: part.state_dict() for name, part in parts.items()}, folder / f"{step}.pt")


def ported(generator, mpd, msd, data, folder):
    adam = {"name": "AdamW", "lr": 2e-3, "arguments": {"betas": list(BETAS)}}
    settings = {"train.batch": BATCH, "train.kimg": BATCH * STEPS / 1000, "every.save_kimg": BATCH * SAVE / 1000}
    settings |= {"g.optimizer": adam, "d.optimizer": adam, "g.precision": "fp32", "d.precision": "fp32"}
    settings["adversarial.weights"] = {"mpd": 2, "msd": 2}  # its least squares has no halves
    spectra = pg.Term(name="mel", function=lambda o, i: (mel(o.images) - mel(i.real_sample)).abs(), weight=45.0)
    terms = [pg.FeatureMatchingL1Penalty(pg.FeatureMatchingL1Options(weight=2.0)), spectra]
    how = {"loss": "least_squares", "terms": terms, "settings": settings, "out": folder}
    return pg.Trainer(generator, {"mpd": mpd, "msd": msd}, data, **how).run()


class Folds(nn.ModuleList):
    # one discriminator per period, by which it folds the wave; each returns logits and feature maps
    def __init__(self, *periods):
        super().__init__(nn.ModuleList([nn.Conv2d(1, 4, (5, 1), (2, 1)), nn.Conv2d(4, 1, (3, 1))]) for _ in periods)
        self.periods = periods

    def forward(self, wave):
        maps = [first(wave.unflatten(2, (-1, p))).tanh() for p, (first, _) in zip(self.periods, self, strict=True)]
        return [(last(h), [h]) for h, (_, last) in zip(maps, self, strict=True)]


class Generator(nn.Sequential):
    def forward(self, frames):
        return super().forward(frames)


def networks():
    torch.manual_seed(0)
    layers = nn.Linear(LENGTH // HOP, 32), nn.Tanh(), nn.Linear(32, LENGTH), nn.Tanh(), nn.Unflatten(1, (1, LENGTH))
    return [net.double() for net in (Generator(*layers), Folds(2, 3), Folds(1, 4))]


def main(folder):
    wave = torch.randn(40, 1, LENGTH, generator=torch.Generator().manual_seed(1)).double().cumsum(2).sin()
    nets, trained = networks(), ported(*networks(), {"wave": wave, "frames": mel(wave)[:, 0]}, folder / "run")
    batches = pg.loading.TensorBatches(trained.trainer.source, BATCH, seed=0)  # the batches of that run
    by_hand(*nets, ((batch["wave"], batch["frames"]) for batch in batches), folder)
    return nets, trained.generator


if __name__ == "__main__":
    nets, generator = main(Path(tempfile.mkdtemp()))
    old, new = nets[0].state_dict(), generator.state_dict()
    print("largest difference:", max((old[name] - new[name]).abs().max().item() for name in old))
