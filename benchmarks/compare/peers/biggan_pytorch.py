"""BigGAN-PyTorch: its training function, with the networks of its CIFAR-10 script."""

from __future__ import annotations

from pathlib import Path

from benchmarks.compare.revision import revision
from benchmarks.compare.works import Prepared, case

SOURCE = "train_fns.py"
WORKS = ("biggan-brock",)
STAND_INS = ("torchvision", "h5py", "tqdm")
WORDS = (
    "--dataset C10 --G_ch 64 --D_ch 64 --G_attn 0 --D_attn 0 --G_init N02 --D_init N02 --G_lr 2e-4 --D_lr 2e-4"
    " --num_D_steps 1 --num_G_accumulations 1 --num_D_accumulations 1 --G_ortho 0.0 --dim_z 128"
)


def prepare(work: str, path: Path | None) -> Prepared:
    import BigGAN
    import train_fns
    import utils

    of = case(work)
    config = vars(utils.prepare_parser().parse_args([*WORDS.split(), "--batch_size", str(of.batch)]))
    config |= {"resolution": of.side, "n_classes": of.classes, "ema": False}
    config |= {f"{side}_activation": utils.activation_dict[config[f"{side}_nl"]] for side in "GD"}
    g, d = BigGAN.Generator(**config), BigGAN.Discriminator(**config)
    z, y = utils.prepare_z_y(of.batch, g.dim_z, of.classes, device="cpu", fp16=False)
    state = {"itr": 0}
    train = train_fns.GAN_training_function(g, d, BigGAN.G_D(g, d), z, y, None, state, config)
    real = of.real()
    return Prepared(lambda: train(real.image, real.label), (g, d), revision(path))
