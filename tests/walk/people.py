"""A conditional GAN on a table of people, as a user writes it: age and income by job, from a CSV file."""

import csv
import random
import sys

import torch
from torch import nn

import paragan as pg

JOBS = {"cook": (30, 25), "nurse": (40, 35), "judge": (55, 90)}  # mean age, mean income in thousands


def write(path, num):
    draw = random.Random(0)
    with open(path, "w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(["job", "age", "income"])
        for _ in range(num):
            job = draw.choice(list(JOBS))
            age, income = JOBS[job]
            lines.writerow([job, f"{draw.gauss(age, 6):.1f}", f"{draw.gauss(income, 0.2 * income):.2f}"])


def read(path):
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    jobs = torch.tensor([list(JOBS).index(row["job"]) for row in rows])
    return jobs, torch.tensor([[float(row["age"]), float(row["income"])] for row in rows])


class Generator(nn.Module):
    latent = 8

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8 + 3, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))

    def forward(self, z, job):
        return self.layers(torch.cat([z, job], 1))


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        sizes = nn.Linear(2 + 3, 64), nn.LeakyReLU(0.2), nn.Linear(64, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1)
        self.layers = nn.Sequential(*sizes)

    def forward(self, person, job):
        return self.layers(torch.cat([person, job], 1))


if __name__ == "__main__":
    write("people.csv", 6000)
    jobs, people = read("people.csv")
    mean, spread = people.mean(0), people.std(0)
    one_hot = nn.functional.one_hot(jobs, len(JOBS)).float()
    torch.manual_seed(0)
    adam = {"lr": 1e-3, "arguments": {"betas": [0.0, 0.9]}}
    run = pg.Trainer(
        Generator(),
        Discriminator(),
        {"person": (people - mean) / spread, "job": one_hot},
        loss="wasserstein",
        settings={
            "train.batch": 128,
            "train.kimg": 64,
            "penalties": [{"name": "gradient_penalty", "weight": 1.0}],
            "g.optimizer": adam,
            "d.optimizer": adam,
            "g.ema.half_life_kimg": 5,
        },
        out="runs/people",
    ).run()
    for number, job in enumerate(JOBS):
        condition = nn.functional.one_hot(torch.full((2000,), number), len(JOBS)).float()
        made = run.generator(torch.randn(2000, 8), condition) * spread + mean
        error = (made.mean(0) / people[jobs == number].mean(0) - 1).abs()
        print(f"{job}: mean age off by {error[0]:.1%}, mean income by {error[1]:.1%}")
        if error.max() > 0.2:
            sys.exit(f"{job}: means of generated people differ by more than 20 %")
