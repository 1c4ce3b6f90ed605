"""A notebook in one file: settings, two networks, a run, its metrics, samples, loading the run, training it longer.

    python examples/notebook.py

Trains about half a minute on one CPU core. The run folder is runs/notebook; the same program again resumes from there.
"""

from torch import nn

import paragan as pg

settings = {"train.kimg": 16, "every.sample_kimg": 4, "g.optimizer.lr": 5e-4}

generator = nn.Sequential(
    *(nn.Linear(64, 32 * 16), nn.ReLU(), nn.Unflatten(1, (32, 4, 4))),
    *(nn.ConvTranspose2d(32, 16, 4, stride=2, padding=1), nn.ReLU()),
    *(nn.ConvTranspose2d(16, 1, 4, stride=2, padding=1), nn.Tanh()),
)
generator.latent = 64
discriminator = nn.Sequential(
    *(nn.Conv2d(1, 16, 4, stride=2, padding=1), nn.LeakyReLU(0.2)),
    *(nn.Conv2d(16, 32, 4, stride=2, padding=1), nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(512, 1)),
)

run = pg.train("digits", settings, out="runs/notebook", generator=generator, discriminator=discriminator)
for line in run.history[-3:]:
    print(line["step"], line["d/loss/adversarial"], line["g/loss/adversarial"])
print(run.score)
images = run.sample(16, seed=0)
images.save("notebook.png", columns=4)

again = pg.load("runs/notebook", generator=generator).sample(16, seed=0)
assert again.tensor.equal(images.tensor)

longer = run.resume({"train.kimg": 2 * run.config.train.kimg})
print(longer.score)
