"""VQGAN's training loop (Esser et al. 2021, "Taming Transformers") by hand, and with paragan: equal weights in float64.

python examples/port_from_taming.py    # prints the largest difference of a weight of the autoencoder
"""

import itertools
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

import paragan as pg

BATCH, STEPS, SAVE, START, BETAS, CODES, DEPTH = 8, 20, 5, 8, (0.5, 0.9), 16, 4


def by_hand(autoencoder, discriminator, lpips, batches, folder):
    lpips.requires_grad_(False).eval()
    optim_g = torch.optim.Adam(autoencoder.parameters(), 1e-3, betas=BETAS)
    optim_d = torch.optim.Adam(discriminator.parameters(), 1e-3, betas=BETAS)
    parts = {"g": autoencoder, "d": discriminator, "optim_g": optim_g, "optim_d": optim_d}
    first = max((int(path.stem) for path in folder.glob("*.pt")), default=0)
    if first:
        state = torch.load(folder / f"{first}.pt", weights_only=True)
        for name, part in parts.items():
            part.load_state_dict(state[name])
    for step, image in enumerate(itertools.islice(batches, first, STEPS), first):
        output = autoencoder(image)
        made, loss_codes = output.images, output.extra["codes"].mean()
        if step >= START:
            loss_d = F.relu(1 - discriminator(image)).mean() + F.relu(1 + discriminator(made.detach())).mean()
            optim_d.zero_grad()
            loss_d.backward()
            optim_d.step()
        likelihood = (made - image).abs().mean() + F.mse_loss(lpips(made), lpips(image))
        loss = likelihood + loss_codes
        if step >= START:
            discriminator.requires_grad_(False)
            loss_g = -discriminator(made).mean()
            last = autoencoder.decoder[-1].weight
            grad_likelihood = torch.autograd.grad(likelihood, last, retain_graph=True)[0]
            grad_g = torch.autograd.grad(loss_g, last, retain_graph=True)[0]
            weight = (grad_likelihood.norm() / (grad_g.norm() + 1e-4)).clamp(0, 1e4).detach()
            loss = loss + 0.8 * weight * loss_g
            discriminator.requires_grad_(True)
        optim_g.zero_grad()
        loss.backward()
        optim_g.step()
        if (step + 1) % SAVE == 0:
            print(f"step {step + 1}: likelihood {likelihood:.3f}, codes {loss_codes:.3f}")
            torch.save({name: part.state_dict() for name, part in parts.items()}, folder / f"{step + 1}.pt")


def ported(autoencoder, discriminator, lpips, data, folder):
    adam = {"name": "Adam", "lr": 1e-3, "arguments": {"betas": list(BETAS)}}
    settings = {"train.batch": BATCH, "train.kimg": BATCH * STEPS / 1000, "every.save_kimg": BATCH * SAVE / 1000}
    settings |= {"g.optimizer": adam, "d.optimizer": adam, "g.precision": "fp32", "d.precision": "fp32"}
    settings["balancer"] = {"name": "adaptive_weight", "last_layer": "decoder.3"}
    start = BATCH * START / 1000
    settings["adversarial"] = {"weight": 0.8, "start_kimg": start, "d_start_kimg": start}
    pixel = pg.Term(name="pixel", function=lambda outputs, inputs: (outputs.images - inputs.real_sample).abs())
    codes = pg.Term(name="codes", function=lambda outputs, inputs: outputs.extra["codes"])
    how = {"terms": [pixel, pg.PerceptualLoss(network=lpips, distance="l2"), codes], "settings": settings}
    return pg.Trainer(autoencoder, discriminator, data, loss="hinge", out=folder / "run", sample="image", **how).run()


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.codes = nn.Parameter(torch.randn(CODES, DEPTH))
        self.encoder = nn.Sequential(nn.Conv2d(1, 8, 4, 2, 1), nn.ReLU(), nn.Conv2d(8, DEPTH, 4, 2, 1))
        up = nn.Upsample(scale_factor=4)
        self.decoder = nn.Sequential(nn.Conv2d(DEPTH, 8, 3, padding=1), nn.ReLU(), up, nn.Conv2d(8, 1, 3, padding=1))

    def forward(self, image):
        h = self.encoder(image).permute(0, 2, 3, 1)
        chosen = self.codes[torch.cdist(h.flatten(0, 2), self.codes).argmin(1)].view(h.shape)
        distance = (chosen - h.detach()).square() + 0.25 * (h - chosen.detach()).square()
        return pg.GeneratorOutput(self.decoder((h + (chosen - h).detach()).permute(0, 3, 1, 2)), {"codes": distance})


def networks():
    torch.manual_seed(0)
    d = nn.Sequential(nn.Conv2d(1, 8, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(8, 1, 3, bias=False))
    return [net.double() for net in (Autoencoder(), d, nn.Conv2d(1, 8, 3))]


def main(folder):
    image = F.interpolate(torch.randn(40, 1, 4, 4, generator=torch.Generator().manual_seed(1)).double(), size=16)
    run, nets = ported(*networks(), {"image": image}, folder), networks()
    by_hand(*nets, (batch["image"] for batch in pg.loading.TensorBatches(run.trainer.source, BATCH, seed=0)), folder)
    return nets, run.generator


if __name__ == "__main__":
    (plain, *_), trained = main(Path(tempfile.mkdtemp()))
    pairs = zip(plain.state_dict().values(), trained.state_dict().values(), strict=True)
    print(f"largest difference: {max(float((a - b).abs().max()) for a, b in pairs):.1e}")
