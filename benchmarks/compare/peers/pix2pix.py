"""The official pix2pix (pytorch-CycleGAN-and-pix2pix): `optimize_parameters` of its model, with its defaults."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

from benchmarks.compare.revision import revision
from benchmarks.compare.works import Prepared, case

SOURCE = "models/pix2pix_model.py"
WORKS = ("pix2pix",)
STAND_INS = ("torchvision", "dominate", "visdom", "wandb")
OPTIONS = {
    "input_nc": 3, "output_nc": 3, "ngf": 64, "ndf": 64, "netG": "unet_256", "netD": "basic", "n_layers_D": 3,
    "norm": "batch", "no_dropout": False, "init_type": "normal", "init_gain": 0.02, "gan_mode": "vanilla",
    "lr": 2e-4, "beta1": 0.5, "lambda_L1": 100.0, "pool_size": 0, "direction": "AtoB",
    "gpu_ids": [], "isTrain": True, "checkpoints_dir": ".", "name": "compare", "preprocess": "none",
}  # fmt: skip


def prepare(work: str, path: Path | None) -> Prepared:
    import torch
    from models.pix2pix_model import Pix2PixModel

    # newer revisions read `device` from the options
    model = Pix2PixModel(SimpleNamespace(**OPTIONS, device=torch.device("cpu")))
    real = case(work).real()
    model.set_input({"A": real.condition, "B": real.image, "A_paths": [], "B_paths": []})
    return Prepared(model.optimize_parameters, (model.netG, model.netD), revision(path))
