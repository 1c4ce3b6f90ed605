"""Names that other trainers use for settings and files, so that messages can suggest the name in paragan."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Hints:
    """Tables of foreign names.

    settings: dotted key (at the top level, also with `train.` before it) -> suggestion, with `{}` for the value.
    names: category -> name in other programs, in lower case -> name of the file in paragan.
    """

    settings: Mapping[str, str] = field(default_factory=dict)
    names: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def setting(self, key: str, value: Any) -> str | None:
        """The suggestion for an unknown key and its value; None where there is none."""
        plain = key.casefold().replace("-", "_")
        text = self.settings.get(plain, self.settings.get(plain.removeprefix("train.")))
        return None if text is None else text.replace("={}", _assigned(value)).replace("{}", _short(value))

    def name(self, category: str, name: str) -> str | None:
        """The file that other programs call `name`; None where there is none."""
        return self.names.get(category, {}).get(name.casefold())


def _assigned(value: Any) -> str:
    """`=value`, or `.key=value` for each entry of a map."""
    if isinstance(value, Mapping) and value:
        return "".join(f".{key}{_assigned(inner)}" for key, inner in list(value.items())[:1])
    return f"={_short(value)}"


def _short(value: Any) -> str:
    """The value as typed in a shell."""
    if value is None:
        return "VALUE"
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


_LR = "use g.optimizer.lr={} d.optimizer.lr={}"
_BATCH = "use train.batch={}"
_EPOCHS = "use train.kimg=K, thousands of images: K = {} x number of images / 1000"
_STEPS = "use train.kimg=K, thousands of images: K = {} x train.batch x d.updates_per_step / 1000"
_DEVICES = "use devices={}"
_DATA = "use data.path={}"
_SIZE = "use data.size={}"
_LATENT = "use model.latent={}"
_OUT = "use --out {}"
_FRESH = "use --fresh to start anew"
_D_UPDATES = "use d.updates_per_step={}"
_MAX_NORM = "use g.max_norm={} d.max_norm={}"
_PRECISION = "use g.precision=bf16 d.precision=bf16"
_MICRO_BATCHES = "use g.micro_batches={} d.micro_batches={}"
_RESUME = "leave it out; the same command resumes, and so does `train RUN` with a run folder"

_SETTINGS = {
    **dict.fromkeys(("lr", "learning_rate"), _LR),
    **dict.fromkeys(("g_lr", "lr_g"), "use g.optimizer.lr={}"),
    **dict.fromkeys(("d_lr", "lr_d"), "use d.optimizer.lr={}"),
    **dict.fromkeys(("optimizer", "optim"), "use g.optimizer={} d.optimizer={}"),
    **dict.fromkeys(("beta1", "b1"), "use g.optimizer.arguments.betas=[{},0.999], and the same for d"),
    "betas": "use g.optimizer.arguments.betas={} d.optimizer.arguments.betas={}",
    "weight_decay": "use g.optimizer.arguments.weight_decay={} d.optimizer.arguments.weight_decay={}",
    **dict.fromkeys(("batch", "batch_size", "bs"), _BATCH),
    **dict.fromkeys(("epochs", "num_epochs", "n_epochs", "max_epochs"), _EPOCHS),
    **dict.fromkeys(("steps", "max_steps", "num_steps", "iterations", "iters", "n_iter"), _STEPS),
    "kimg": "use train.kimg={}",
    "threads": "use train.threads={}",
    **dict.fromkeys(("gpus", "num_gpus", "n_gpu", "ngpu", "nproc", "nproc_per_node"), _DEVICES),
    "device": "leave it out; an accelerator is used where one is visible, else the CPU; devices=N takes several",
    **dict.fromkeys(("num_workers", "n_workers"), "leave it out; images are decoded in the training process"),
    **dict.fromkeys(("precision", "amp", "fp16", "bf16", "mixed_precision"), _PRECISION),
    **dict.fromkeys(("grad_accum", "gradient_accumulation_steps", "accumulate_grad_batches"), _MICRO_BATCHES),
    **dict.fromkeys(("clip", "grad_clip", "clip_grad_norm", "max_grad_norm", "gradient_clip_val"), _MAX_NORM),
    **dict.fromkeys(("n_critic", "critic_iters", "d_steps", "num_d_steps", "n_dis"), _D_UPDATES),
    "data.path": "use data.name=folder data.path={} for a folder of images, or train the recipe own",
    **dict.fromkeys(("data", "dataroot", "data_root", "data_dir", "data_path"), _DATA),
    "dataset": "use data.name={}",
    **dict.fromkeys(("size", "image_size", "img_size", "imsize", "resolution", "imgsz"), _SIZE),
    **dict.fromkeys(("latent", "z_dim", "dim_z", "latent_dim", "nz", "noise_dim"), _LATENT),
    **dict.fromkeys(("aug", "augmentation"), "use augment={}"),
    **dict.fromkeys(("ema_kimg", "half_life_kimg"), "use g.ema.half_life_kimg={}"),
    **dict.fromkeys(("output", "output_dir", "out_dir", "outdir", "outf", "save_dir", "logdir", "log_dir"), _OUT),
    **dict.fromkeys(("run_name", "exp_name", "experiment"), "use --out runs/{}"),
    **dict.fromkeys(("config", "cfg", "recipe"), "use the recipe as the first word: train {}"),
    **dict.fromkeys(("resume", "auto_resume", "resume_from", "continue"), _RESUME),
    **dict.fromkeys(("overwrite", "restart", "no_resume"), _FRESH),
    **dict.fromkeys(("ckpt", "checkpoint", "pretrained", "weights", "finetune", "load"), "use init={}, a run folder"),
    "dry_run": "leave it out; `config` instead of `train` checks and prints every setting",
    "compile": "use train.executor=compile",
    **dict.fromkeys(("save_every", "save_interval", "snap"), "use every.save_kimg=K, thousands of images"),
    **dict.fromkeys(("sample_every", "sample_interval"), "use every.sample_kimg=K, thousands of images"),
    **dict.fromkeys(("eval_every", "eval_interval"), "use every.score_kimg=K, thousands of images"),
    **dict.fromkeys(("log_every", "log_interval"), "use every.log_steps={}"),
    **dict.fromkeys(("tensorboard", "wandb"), "use writers=[images,jsonl,console,report,tensorboard]"),
}

_FOLDER = ("imagefolder", "image_folder", "images", "custom", "celeba", "lsun", "ffhq")
_NAMES = {
    "losses": {
        **dict.fromkeys(("wgan", "wgan-gp", "wgangp"), "wasserstein"),
        **dict.fromkeys(("bce", "vanilla", "gan", "ns", "softplus", "logistic", "standard"), "nonsaturating"),
        **dict.fromkeys(("lsgan", "mse", "l2"), "least_squares"),
        **dict.fromkeys(("rgan", "rsgan", "rpgan"), "relativistic"),
        "ragan": "relativistic_average",
        **dict.fromkeys(("saturating", "mm"), "minimax"),
    },
    "penalties": {
        **dict.fromkeys(("gp", "wgan-gp", "wgangp"), "gradient_penalty"),
        **dict.fromkeys(("pl", "ppl", "plr"), "path_length"),
        **dict.fromkeys(("cr", "bcr"), "consistency"),
        **dict.fromkeys(("fm", "feature-matching"), "feature_matching"),
        **dict.fromkeys(("ac", "acgan", "ce"), "auxiliary"),
        "d2d-ce": "data_to_data",
    },
    "datasets": dict.fromkeys(_FOLDER, "folder"),
    "augment": dict.fromkeys(("diff", "daug", "translation"), "diffaugment"),
    "parallel": {
        "fsdp": "zero3",
        "fsdp2": "zero3",
        "dp": "ddp",
        "zero": "zero1",
        "localsgd": "local_sgd",
        "averaged": "local_sgd",
    },
    "schemes": {"sync": "synchronous", "async": "asynchronous"},
}

HINTS = Hints(_SETTINGS, _NAMES)
