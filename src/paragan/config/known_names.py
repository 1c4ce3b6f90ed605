"""What other trainers call the settings and files of this one. Data only; `core.hints` reads it."""

from __future__ import annotations

from paragan.config.hints import Hints

_LR = "give g.optimizer.lr={} d.optimizer.lr={}"
_BATCH = "give train.batch={}"
_EPOCHS = "give train.kimg=K, thousands of images: K = {} x number of images / 1000"
_STEPS = "give train.kimg=K, thousands of images: K = {} x train.batch x d.updates_per_step / 1000"
_DEVICES = "give devices={}"
_DATA = "give data.path={}"
_SIZE = "give data.size={}"
_LATENT = "give model.latent={}"
_OUT = "give --out {}"
_FRESH = "give --fresh to start anew"
_D_UPDATES = "give d.updates_per_step={}"
_MAX_NORM = "give g.max_norm={} d.max_norm={}"
_PRECISION = "give g.precision=bf16 d.precision=bf16"
_MICRO_BATCHES = "give g.micro_batches={} d.micro_batches={}"
_RESUME = "leave it out: the same command resumes, and so does `train RUN` with a run folder"

_SETTINGS = {
    **dict.fromkeys(("lr", "learning_rate"), _LR),
    **dict.fromkeys(("g_lr", "lr_g"), "give g.optimizer.lr={}"),
    **dict.fromkeys(("d_lr", "lr_d"), "give d.optimizer.lr={}"),
    **dict.fromkeys(("optimizer", "optim"), "give g.optimizer={} d.optimizer={}"),
    **dict.fromkeys(("beta1", "b1"), "give g.optimizer.arguments.betas=[{},0.999], and the same for d"),
    "betas": "give g.optimizer.arguments.betas={} d.optimizer.arguments.betas={}",
    "weight_decay": "give g.optimizer.arguments.weight_decay={} d.optimizer.arguments.weight_decay={}",
    **dict.fromkeys(("batch", "batch_size", "bs"), _BATCH),
    **dict.fromkeys(("epochs", "num_epochs", "n_epochs", "max_epochs"), _EPOCHS),
    **dict.fromkeys(("steps", "max_steps", "num_steps", "iterations", "iters", "n_iter"), _STEPS),
    "kimg": "give train.kimg={}",
    "threads": "give train.threads={}",
    **dict.fromkeys(("gpus", "num_gpus", "n_gpu", "ngpu", "nproc", "nproc_per_node"), _DEVICES),
    "device": "leave it out: an accelerator is used where one is visible, else the CPU; devices=N takes several",
    **dict.fromkeys(("num_workers", "n_workers"), "leave it out: images are decoded in the training process"),
    **dict.fromkeys(("precision", "amp", "fp16", "bf16", "mixed_precision"), _PRECISION),
    **dict.fromkeys(("grad_accum", "gradient_accumulation_steps", "accumulate_grad_batches"), _MICRO_BATCHES),
    **dict.fromkeys(("clip", "grad_clip", "clip_grad_norm", "max_grad_norm", "gradient_clip_val"), _MAX_NORM),
    **dict.fromkeys(("n_critic", "critic_iters", "d_steps", "num_d_steps", "n_dis"), _D_UPDATES),
    "data.path": "give data.name=folder data.path={} for a folder of images, or train the recipe own",
    **dict.fromkeys(("data", "dataroot", "data_root", "data_dir", "data_path"), _DATA),
    "dataset": "give data.name={}",
    **dict.fromkeys(("size", "image_size", "img_size", "imsize", "resolution", "imgsz"), _SIZE),
    **dict.fromkeys(("latent", "z_dim", "dim_z", "latent_dim", "nz", "noise_dim"), _LATENT),
    **dict.fromkeys(("aug", "augmentation"), "give augment={}"),
    **dict.fromkeys(("ema_kimg", "half_life_kimg"), "give g.ema.half_life_kimg={}"),
    **dict.fromkeys(("output", "output_dir", "out_dir", "outdir", "outf", "save_dir", "logdir", "log_dir"), _OUT),
    **dict.fromkeys(("run_name", "exp_name", "experiment"), "give --out runs/{}"),
    **dict.fromkeys(("config", "cfg", "recipe"), "give the recipe as the first word: train {}"),
    **dict.fromkeys(("resume", "auto_resume", "resume_from", "continue"), _RESUME),
    **dict.fromkeys(("overwrite", "restart", "no_resume"), _FRESH),
    **dict.fromkeys(("ckpt", "checkpoint", "pretrained", "weights", "finetune", "load"), "give init={}, a run folder"),
    "dry_run": "leave it out: `config` instead of `train` checks and prints every setting",
    "compile": "give train.executor=compile",
    **dict.fromkeys(("save_every", "save_interval", "snap"), "give every.save_kimg=K, thousands of images"),
    **dict.fromkeys(("sample_every", "sample_interval"), "give every.sample_kimg=K, thousands of images"),
    **dict.fromkeys(("eval_every", "eval_interval"), "give every.score_kimg=K, thousands of images"),
    **dict.fromkeys(("log_every", "log_interval"), "give every.log_steps={}"),
    **dict.fromkeys(("tensorboard", "wandb"), "give writers=[images,jsonl,console,report,tensorboard]"),
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
