"""StudioGAN: the turns of its worker, with its CIFAR-10 configs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.compare.revision import revision
from benchmarks.compare.works import Prepared, case

SOURCE = "src/worker.py"
FOLDERS = ("src",)
WORKS = ("dcgan", "sngan", "biggan")
STAND_INS = ("torchvision", "wandb", "h5py", "tqdm", "sklearn", "seaborn", "pandas", "prdc", "timm", "ninja", "einops")
CONFIGS = {"dcgan": "DCGAN", "sngan": "SNGAN", "biggan": "BigGAN"}
RUN = {
    "seed": 0, "mixed_precision": False, "distributed_data_parallel": False, "synchronized_bn": False, "freezeD": -1,
    "batch_statistics": False, "standing_statistics": False, "langevin_sampling": False, "train": True,
    "truncation_factor": -1.0, "print_freq": 1 << 30, "save_dir": ".", "ckpt_dir": None, "data_dir": ".",
    "empty_cache": False,
    "eval_metrics": ["none"], "load_train_hdf5": False, "load_data_in_memory": False, "ref_dataset": "train",
}  # fmt: skip
ABSENT = (
    "eval_model eval_dataloader mu sigma real_feats logger aa_p best_fid best_ckpt_path lecam_emas run_name "
    "num_eval loss_list_dict metric_dict_during_train"
)


def prepare(work: str, path: Path | None) -> Prepared:
    _provide_pkg_resources()
    from worker import WORKER

    of, real = case(work), case(work).real()
    cfgs = _config(path, work, of.batch)
    from models import model

    parts = (cfgs.DATA, cfgs.OPTIMIZATION, cfgs.MODEL, cfgs.STYLEGAN, cfgs.MODULES, cfgs.RUN)
    g, g_mapping, g_synthesis, d, *_ = model.load_generator_discriminator(*parts, "cpu", None)
    cfgs.define_optimizer(g, d)
    label = real.label if real.label is not None else real.image.new_zeros(of.batch, dtype=int)
    networks = {"Gen": g, "Gen_mapping": g_mapping, "Gen_synthesis": g_synthesis, "Dis": d}
    networks |= dict.fromkeys(("Gen_ema", "Gen_ema_mapping", "Gen_ema_synthesis", "ema"))
    place = {"train_dataloader": [(real.image, label)], "global_rank": 1, "local_rank": "cpu", "best_step": 0}
    worker = WORKER(cfgs=cfgs, **networks, **place, **dict.fromkeys(ABSENT.split()))
    worker.topk = of.batch
    worker.prepare_train_iter(0)

    def step() -> None:
        worker.train_discriminator(0)
        worker.train_generator(0)

    return Prepared(step, (g, d), revision(path))


def _config(path: Path | None, work: str, batch: int) -> Any:
    import config

    cfgs: Any = config.Configurations(str(path / f"src/configs/CIFAR10/{CONFIGS[work]}.yaml"))
    cfgs.update_cfgs(RUN, super="RUN")
    for name, value in {"batch_size": batch, "acml_steps": 1, "d_updates_per_step": 1, "world_size": 1}.items():
        setattr(cfgs.OPTIMIZATION, name, value)
    cfgs.MODEL.apply_g_ema = False
    cfgs.define_modules()
    return cfgs


def _provide_pkg_resources() -> None:
    """Setuptools 82 has none; StudioGAN compares the version of torch by it."""
    import importlib.util
    import sys
    from types import SimpleNamespace

    if importlib.util.find_spec("pkg_resources") is None:
        from packaging.version import parse

        sys.modules["pkg_resources"] = SimpleNamespace(parse_version=parse)  # type: ignore[assignment]
