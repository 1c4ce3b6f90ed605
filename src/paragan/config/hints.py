"""Names of settings and files in other trainers, for suggestions in messages."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_SETTINGS = {  # the setting here, with `{}` for the value -> dotted keys in other programs
    "use g.optimizer.lr={} d.optimizer.lr={}": "lr learning_rate",
    "use g.optimizer.lr={}": "g_lr lr_g",
    "use d.optimizer.lr={}": "d_lr lr_d",
    "use g.optimizer={} d.optimizer={}": "optimizer optim",
    "use g.optimizer.arguments.betas=[{},0.999], and the same for d": "beta1 b1",
    "use g.optimizer.arguments.betas={} d.optimizer.arguments.betas={}": "betas",
    "use g.optimizer.arguments.weight_decay={} d.optimizer.arguments.weight_decay={}": "weight_decay",
    "use train.batch={}": "batch batch_size bs",
    "use train.kimg=K, thousands of images: K = {} x number of images / 1000": "epochs num_epochs n_epochs max_epochs",
    "use train.kimg=K, thousands of images: K = {} x train.batch x d.updates_per_step / 1000": (
        "steps max_steps num_steps iterations iters n_iter"
    ),
    "use train.kimg={}": "kimg",
    "use train.threads={}": "threads",
    "use devices={}": "gpus num_gpus n_gpu ngpu nproc nproc_per_node",
    "leave it out; an accelerator is used where one is visible, else the CPU; devices=N takes several": "device",
    "use loading.threads={}": "num_workers n_workers",
    "use g.precision={} d.precision={}": "precision amp fp16 bf16 mixed_precision",
    "use g.micro_batches={} d.micro_batches={}": "grad_accum gradient_accumulation_steps accumulate_grad_batches",
    "use g.max_norm={} d.max_norm={}": "clip grad_clip clip_grad_norm max_grad_norm gradient_clip_val",
    "use d.updates_per_step={}": "n_critic critic_iters d_steps num_d_steps n_dis",
    "use data.name=folder data.path={} for a folder of images, or train the recipe own": "data.path",
    "use data.path={}": "data dataroot data_root data_dir data_path",
    "use data.name={}": "dataset",
    "use data.size={}": "size image_size img_size imsize resolution imgsz",
    "use model.latent={}": "latent z_dim dim_z latent_dim nz noise_dim",
    "use augment={}": "aug augmentation",
    "use g.ema.half_life_kimg={}": "ema_kimg half_life_kimg",
    "use g.ema.half_life_kimg=K, thousands of images: K = ln(2) / (1 - {}) x train.batch / 1000": (
        "ema ema_decay ema_beta g.ema g.ema.decay g.ema_decay"
    ),
    "use penalties='[{name: gradient_penalty, weight: {}}]'": "gp_weight gp_lambda lambda_gp",
    "use --out {}": "output output_dir out_dir outdir outf save_dir logdir log_dir",
    "use --out runs/{}": "run_name exp_name experiment",
    "use the recipe as the first word: train {}": "config cfg recipe",
    "leave it out; the same command resumes, and so does `train RUN` with a run folder": (
        "resume auto_resume resume_from continue"
    ),
    "use --fresh to start anew": "overwrite restart no_resume",
    "use init={}, a run folder, or g.init={}, a safetensors file": "ckpt checkpoint pretrained weights finetune load",
    "leave it out; `config` instead of `train` checks and prints every setting": "dry_run",
    "use train.executor=compile": "compile",
    "use every.save_kimg=K, thousands of images": "save_every save_interval snap",
    "use every.sample_kimg=K, thousands of images": "sample_every sample_interval",
    "use every.score_kimg=K, thousands of images": "eval_every eval_interval",
    "use every.log_steps={}": "log_every log_interval",
    "use writers=[images,jsonl,console,report,tensorboard]": "tensorboard",
    "use writers=[images,jsonl,console,report,wandb]": "wandb",
    "use writers=[images,jsonl,console,report,mlflow]": "mlflow",
}
_NAMES = {  # category -> file here -> names in other programs, in lower case
    "losses": {
        "wasserstein": "wgan",
        "nonsaturating": "bce vanilla gan ns softplus logistic standard",
        "least_squares": "lsgan mse l2",
        "relativistic": "rgan rsgan rpgan",
        "relativistic_average": "ragan",
        "minimax": "saturating mm",
    },
    "penalties": {
        "gradient_penalty": "gp wgan-gp wgangp",
        "approximate_r1": "ar1",
        "approximate_r2": "ar2",
        "path_length": "pl ppl plr",
        "consistency": "cr bcr",
        "feature_matching": "fm feature-matching",
        "auxiliary": "ac acgan ce",
        "data_to_data": "d2d-ce",
    },
    "datasets": {"folder": "imagefolder image_folder images custom celeba lsun ffhq"},
    "augment": {"diffaugment": "diff daug translation"},
    "parallel": {"zero3": "fsdp fsdp2", "ddp": "dp", "zero1": "zero", "local_sgd": "localsgd averaged"},
    "schemes": {"synchronous": "sync", "asynchronous": "async"},
}
_WGAN_GP = "wasserstein with a gradient penalty; use loss=wasserstein penalties=gradient_penalty"
_FID = "fd in the features of Inception; use evaluation.metrics=fd evaluation.features=inception"
_COMBINATIONS = {  # names of what takes several settings here
    "losses": dict.fromkeys(("wgan-gp", "wgan_gp", "wgangp"), _WGAN_GP),
    "metrics": {"fid": _FID},
}
_FORMATS = {  # of a computation, in other programs
    **dict.fromkeys(("fp16", "float16", "half", "16", "fp16-mixed", "16-mixed"), "fp16"),
    **dict.fromkeys(("fp32", "float32", "32", "32-true", "no"), "fp32"),
}


def _by_foreign_name(table: Mapping[str, str]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for ours, names in table.items():
        pairs |= dict.fromkeys(names.split(), ours)
    return pairs


SETTINGS = _by_foreign_name(_SETTINGS)
NAMES = {category: _by_foreign_name(table) for category, table in _NAMES.items()}


def setting_hint(key: str, value: Any) -> str | None:
    """Return the setting here for one of another trainer, or None; a prefix `train.` is ignored."""
    plain = key.casefold().replace("-", "_")
    if plain not in SETTINGS:
        plain = plain.removeprefix("train.")
    text = SETTINGS.get(plain)
    if text is None or ("1 - {}" in text and not _is_decay(value)):
        return None
    if "loading.threads" in text and str(value) == "0":
        return "use loading.prefetch=0"
    if "g.precision" in text:
        value = _format(plain, value)
    return text.replace("={}", _assigned(value)).replace("{}", _short(value))


def name_hint(category: str, name: str, key: str) -> str | None:
    """Return the message for the name of another program, or None. key: the setting."""
    folded = name.casefold()
    if (settings := _COMBINATIONS.get(category, {}).get(folded)) is not None:
        return f"{name!r} is {settings}"
    if (ours := NAMES.get(category, {}).get(folded)) is not None:
        return f"{name!r} is called {ours} in paragan; use {key}={ours}"
    return None


def _is_decay(value: Any) -> bool:
    """Return whether a value is that of an average per update, or missing."""
    try:
        return value is None or 0 < float(value) < 1
    except (TypeError, ValueError):
        return False


def _format(key: str, value: Any) -> str:
    """Return the precision here for `precision=16`, `fp16=true` or `amp=true`."""
    word = str(value).casefold()
    if key not in ("precision", "mixed_precision") and value in (None, True, "true"):
        word = key
    return "fp32" if value is False else _FORMATS.get(word, "bf16")


def _assigned(value: Any) -> str:
    """Return `=value`, or `.key=value` for the first entry of a map."""
    if isinstance(value, Mapping) and value:
        return "".join(f".{key}{_assigned(inner)}" for key, inner in list(value.items())[:1])
    return f"={_short(value)}"


def _short(value: Any) -> str:
    """Return the value as typed in a shell."""
    if value is None:
        return "VALUE"
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
