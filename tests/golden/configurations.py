"""The runs whose results are fixed: every scheme, strategy, kind of network and penalty, and grids.

Each trains for 20 steps of 16 images, in float32 on one thread. The settings stand here in full where a default could
change what is computed.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

STEPS, BATCH = 20, 16
COMMON = (
    f"train.batch={BATCH}",
    f"train.kimg={STEPS * BATCH / 1000}",
    "train.threads=1",
    "every.sample_kimg=0",
    "every.save_kimg=0",
    "every.score_kimg=0",
    "evaluation.features=null",
    "g.precision=fp32",
    "d.precision=fp32",
    "seed=3",
)
BASE = """
format: 1
data: {name: digits, size: 16}
model: {name: dcgan, latent: 8, width: 4}
loss: nonsaturating
g: {optimizer: {name: Adam, lr: 0.002, arguments: {betas: [0.0, 0.99]}}, ema: {half_life_kimg: 0.1}}
d: {optimizer: {name: Adam, lr: 0.002, arguments: {betas: [0.0, 0.99]}}}
"""
_R1 = "{name: r1, interval: 4}"
_GRID = (
    "model={name: mlp, latent: 8, g_widths: [16, 24], d_widths: [24, 16]}",
    "grid.shape=2x2",
    "grid.batches=5",
    "grid.executor=loop",
    "grid.fitness.num_images=64",
    "grid.mixture.num_images=0",
    "grid.losses=[hinge, nonsaturating]",
    f"train.kimg={STEPS * BATCH / 1000}",
)
_BIG = "width: 4, latent: 9, shared: 8"

CONFIGURATIONS: dict[str, tuple[str, ...]] = {
    # schemes
    "synchronous": ("scheme=synchronous", "d.updates_per_step=2", "train.kimg=0.64", f"penalties=[{_R1}]"),
    "shared_fakes": ("scheme=shared_fakes", "augment=diffaugment", f"penalties=[{_R1}, lecam]"),
    "extragradient": (
        "scheme=extragradient",
        "loss=wasserstein",
        "penalties=[gradient_penalty]",
        "model.d_norm=spectral",
    ),
    "skipping": ("scheme=skipping", "loss=least_squares", "augment=ada", "penalties=[consistency]"),
    "asynchronous": ("scheme={name: asynchronous, staleness: 0, reuse: false}", "g.max_norm=1.0"),
    "asynchronous-on-2-ranks": ("scheme={name: asynchronous, staleness: 0, reuse: true}", "devices=2"),
    "parameter_server-on-3-ranks": ("scheme={name: parameter_server, staleness: 0}", "devices=3"),
    # strategies on two ranks
    "ddp-and-zero1-on-2-ranks": (
        "g.strategy=zero1",
        "d.strategy=ddp",
        f"penalties=[{_R1}]",
        "d.micro_batches=2",
        "devices=2",
    ),
    "zero2-and-zero3-on-2-ranks": ("g.strategy=zero3", "d.strategy=zero2", f"penalties=[{_R1}]", "devices=2"),
    "local_sgd-on-2-ranks": (
        "g.strategy={name: local_sgd, every: 2}",
        "d.strategy={name: local_sgd, every: 2}",
        "devices=2",
    ),
    "hsdp-on-4-ranks": ("g.strategy=hsdp", "d.strategy=hsdp", "model.d_norm=batch", "devices=4"),
    # networks, with the penalties and losses that belong to them
    "mlp": ("model={name: mlp, latent: 8}", "loss=minimax", "penalties=[feature_matching]", "d.micro_batches=2"),
    "sngan": ("model={name: sngan, width: 4, latent: 8}", "loss=hinge", "scheme=shared_fakes"),
    "sagan": ("model={name: sagan, width: 16, latent: 8, head: auxiliary}", "loss=hinge", "penalties=[auxiliary]"),
    "biggan": (f"model={{name: biggan, {_BIG}}}", "loss=hinge", "penalties=[orthogonal]", "d.micro_batches=2"),
    "biggan_deep": (f"model={{name: biggan_deep, {_BIG}}}", "loss=hinge", "g.recompute=true"),
    "contragan": (f"model={{name: contragan, {_BIG}, embed: 6}}", "loss=hinge", "penalties=[contrastive]"),
    "reacgan": (f"model={{name: reacgan, {_BIG}, embed: 6}}", "loss=hinge", "penalties=[data_to_data]"),
    "stylegan2": (
        "model={name: stylegan2, latent: 8, style: 8, mapping: 2, width: 8, base: 64}",
        "penalties=[path_length, {name: r1, interval: 4}]",
        "scheme=synchronous",
    ),
    "r3gan": (
        "model={name: r3gan, latent: 8, width: 8, groups: 4, embed: 5}",
        "loss=relativistic",
        "penalties=[r1, r2]",
    ),
    "relativistic_average": (
        "loss=relativistic_average",
        "g.optimizer={name: adabelief, lr: 0.002}",
        "d.optimizer={name: lamb, lr: 0.002}",
        "g.schedule={name: linear, warmup: 5, end: 20}",
    ),
    "pix2pix": (
        "data={name: paired, path: PAIRS, size: 16}",
        "model={name: pix2pix, width: 4}",
        "penalties=[l1]",
        "g.ema=null",
        "d.optimizer={name: optimistic_adam, lr: 0.002}",
        "data.flip=true",
    ),
    # populations
    "grid-in-one-process": _GRID,
    "grid-over-workers": (*_GRID, "workers=2"),
}


def write_pairs(folder: Path) -> None:
    """40 pairs of noise, 16 px each, as PNG files."""
    folder.mkdir(parents=True)
    draws = np.random.default_rng(0)
    for number in range(40):
        image = draws.integers(0, 256, (16, 32, 3), dtype=np.uint8)
        Image.fromarray(image).save(folder / f"{number:02d}.png")
