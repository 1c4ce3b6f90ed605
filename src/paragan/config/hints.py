"""Names of settings and files in other trainers, for suggestions in messages."""

import json
from collections.abc import Mapping
from typing import Any

from paragan.core import registry

_SETTINGS = {  # the setting here, with `{}` for the value -> dotted keys in other programs
    "use g.optimizer.lr={} d.optimizer.lr={}": "lr learning_rate",
    "use g.optimizer.lr={}": "g_lr lr_g",
    "use d.optimizer.lr={}": "d_lr lr_d",
    "use g.optimizer={} d.optimizer={}": "optimizer",
    "use g.optimizer.arguments.betas={} d.optimizer.arguments.betas={}": "betas",
    "use train.batch={}": "batch batch_size",
    "use train.kimg=K, thousands of images: K = {} x number of images / 1000": "epochs num_epochs n_epochs",
    "use train.kimg=K, thousands of images: K = {} x train.batch x d.updates_per_step / 1000": "steps max_steps",
    "use train.threads={}": "threads",
    "use devices={}": "gpus num_gpus",
    "leave it out; an accelerator is used where one is visible, else the CPU; devices=N takes several": "device",
    "use loading.threads={}": "num_workers workers",
    "use g.precision=P d.precision=P, P one of fp32, fp16 and bf16": "precision amp fp16 bf16 mixed_precision",
    "use g.micro_batches={} d.micro_batches={}": "gradient_accumulation_steps",
    "use g.max_norm={} d.max_norm={}": "grad_clip max_grad_norm",
    "use d.updates_per_step={}": "n_critic d_steps",
    "use data.name=folder data.path={} for a folder of images, or train the recipe own": "data.path",
    "use data.path={}": "data dataroot data_dir",
    "use data.name={}": "dataset",
    "use data.size={}": "size image_size img_size resolution",
    "use model.latent={}": "latent z_dim latent_dim nz",
    "use g.ema.half_life_kimg=K, thousands of images: K = ln(2) / (1 - decay) x train.batch / 1000": (
        "ema ema_decay ema_beta g.ema g.ema.decay"
    ),
    "use penalties='[{name: gradient_penalty, weight: {}}]'": "gp_weight lambda_gp",
    "use --out {}": "output_dir outdir save_dir",
    "leave it out; the same command resumes, and so does `train RUN` with a run folder": "resume",
    "use init={}, a run folder, or g.init={}, a safetensors file": "checkpoint pretrained",
    "leave it out; `config` instead of `train` checks and prints every setting": "dry_run",
    "use train.executor=compile": "compile",
    "use every.save_kimg=K, thousands of images": "save_every snap",
    "use every.score_kimg=K, thousands of images": "eval_every",
    "use writers=[images,jsonl,console,report,wandb]": "wandb",
}
_NAMES = {  # category -> file here -> names in other programs, in lower case
    "losses": {
        "wasserstein": "wgan",
        "nonsaturating": "bce vanilla gan ns softplus logistic",
        "least_squares": "lsgan mse",
        "relativistic": "rgan rpgan",
        "relativistic_average": "ragan",
    },
    "penalties": {
        "gradient_penalty": "gp wgan-gp wgangp",
        "path_length": "pl ppl",
        "consistency": "cr bcr",
        "feature_matching": "fm",
        "auxiliary": "ac acgan",
    },
    "datasets": {"folder": "imagefolder image_folder images custom celeba lsun ffhq"},
    "augment": {"diffaugment": "diff"},
    "parallel": {"zero3": "fsdp fsdp2", "ddp": "dp"},
}
_MIN_PREFIX = 4  # letters of a name that is shortened, such as sync for synchronous
_WGAN_GP = "wasserstein with a gradient penalty; use loss=wasserstein penalties=gradient_penalty"
_FID = "fd in the features of Inception; use evaluation.metrics=fd evaluation.features=inception"
_COMBINATIONS = {  # names of what takes several settings here
    "losses": dict.fromkeys(("wgan-gp", "wgan_gp", "wgangp"), _WGAN_GP),
    "metrics": {"fid": _FID},
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
    if text is None:
        return None
    if "loading.threads" in text and str(value) == "0":  # 0 workers: batches are read between steps
        return "use loading.prefetch=0"
    return text.replace("={}", _assigned(value)).replace("{}", _short(value))


def name_hint(category: str, name: str, key: str) -> str | None:
    """Return the message for the name of another program, or None. key: the setting."""
    folded = name.casefold()
    if (settings := _COMBINATIONS.get(category, {}).get(folded)) is not None:
        return f"{name!r} is {settings}"
    if (ours := NAMES.get(category, {}).get(folded)) is not None:
        return f"{name!r} is called {ours} in paragan; use {key}={ours}"
    longer = [known for known in registry.names(category) if known.startswith(folded)]
    is_typo = registry.closest_name(folded, longer) is not None  # `dcga`: the message for typos has all names
    if len(longer) == 1 and len(folded) >= _MIN_PREFIX and not is_typo:
        return f"{name!r} is called {longer[0]} in paragan; use {key}={longer[0]}"
    return None


def list_hint(value: object) -> str:
    """Return the end of a message about text with commas where a list is valid; empty for other values."""
    if not isinstance(value, str) or "," not in value:
        return ""
    return f"; write the list as [{', '.join(part.strip() for part in value.split(','))}]"


def _assigned(value: Any) -> str:
    """Return `=value`, or `.key=value` for the first entry of a map."""
    if isinstance(value, Mapping) and value:
        key, inner = next(iter(value.items()))
        return f".{key}{_assigned(inner)}"
    return f"={_short(value)}"


def _short(value: Any) -> str:
    """Return the value as typed in a shell."""
    if value is None:
        return "VALUE"
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
