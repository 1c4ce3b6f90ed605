"""An adversarial autoencoder, as a user writes it: D sees codes, G returns them and what it decodes from them."""

import sys

import torch
from torch import nn

import paragan as pg


class Autoencoder(nn.Module):
    def __init__(self, width=64, code=4):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(16, width), nn.ReLU(), nn.Linear(width, code))
        self.decode = nn.Sequential(nn.Linear(code, width), nn.ReLU(), nn.Linear(width, 16))

    def forward(self, signal):
        code = self.encode(signal)
        return pg.GeneratorOutput(code, extra={"decoded": self.decode(code)})


def signals(num):
    """Sums of two sines of random size and phase (num, 16): four numbers each."""
    size, phase = torch.rand(num, 2, 1), 2 * torch.pi * torch.rand(num, 2, 1)
    time = torch.linspace(0, 2 * torch.pi, 16) * torch.tensor([[1.0], [3.0]])
    return (size * (time + phase).sin()).sum(1)


if __name__ == "__main__":
    torch.manual_seed(0)
    data = signals(8000)
    critic = nn.Sequential(nn.Linear(4, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1))
    error = pg.Term(
        name="error",
        function=lambda outputs, inputs: (outputs.extra["decoded"] - inputs.tensors["signal"]) ** 2,
        weight=20.0,
    )
    adam = {"lr": 1e-3, "arguments": {"betas": [0.5, 0.9]}}
    run = pg.Trainer(
        Autoencoder(),
        critic,
        {"code": torch.randn(8000, 4), "signal": data},
        sample="code",
        loss="nonsaturating",
        terms=[error],
        settings={"train.batch": 64, "train.kimg": 64, "g.optimizer": adam, "d.optimizer": adam},
        out="runs/autoencoder",
    ).run()
    output = run.generator(data)
    spread, left = output.images.std(0), (output.extra["decoded"] - data).square().mean() / data.square().mean()
    shown = [round(float(value), 2) for value in spread]
    print(f"standard deviations of the code: {shown}; error {left:.1%} of the signal")
    if left > 0.2 or not 0.6 < spread.min() <= spread.max() < 1.5:
        sys.exit("the codes are not standard normal, or the signal is not decoded")
