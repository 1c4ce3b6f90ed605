"""Stand-ins for the checkouts of peers: the names that adapters of `benchmarks.compare` use, and nothing else."""

from __future__ import annotations

from pathlib import Path

PIX2PIX = """
import torch, torchvision
class Pix2PixModel:
    def __init__(self, options):
        self.options, self.steps = options, 0
        self.netG, self.netD = torch.nn.Linear(2, 3), torch.nn.Linear(3, 1)
    def set_input(self, values):
        self.shape = values["A"].shape
    def optimize_parameters(self):
        assert self.shape == (1, 3, 256, 256) and self.options.lambda_L1 == 100
        print("step")
"""
BIGGAN = """
import torch
class Generator(torch.nn.Linear):
    def __init__(self, resolution, n_classes, G_activation, **config):
        assert (resolution, n_classes, config["ema"], config["batch_size"]) == (32, 10, False, 4)
        super().__init__(2, 3)
        self.dim_z = 128
class Discriminator(torch.nn.Linear):
    def __init__(self, D_activation, **config):
        super().__init__(3, 1)
G_D = lambda g, d: (g, d)
"""
BIGGAN_UTILS = """
import argparse, torchvision, h5py
activation_dict = {"relu": None}
def prepare_parser():
    parser = argparse.ArgumentParser()
    for name in "dataset G_ch D_ch G_attn D_attn G_init D_init G_lr D_lr dim_z G_ortho".split():
        parser.add_argument("--" + name)
    for name in ("num_D_steps", "num_G_accumulations", "num_D_accumulations", "batch_size"):
        parser.add_argument("--" + name, type=int)
    parser.set_defaults(G_nl="relu", D_nl="relu")
    return parser
def prepare_z_y(batch, latent, classes, device, fp16):
    return (batch, latent), (classes, device)
"""
BIGGAN_TRAIN = """
def GAN_training_function(G, D, GD, z_, y_, ema, state_dict, config):
    assert GD == (G, D) and z_ == (4, 128) and y_ == (10, "cpu") and ema is None
    def train(x, y):
        assert x.shape == (4, 3, 32, 32) and y.shape == (4,)
        print("step")
    return train
"""
STUDIO_WORKER = """
import wandb, pkg_resources, torchvision
assert pkg_resources.parse_version("2.1") < pkg_resources.parse_version("2.13")
@torchvision.register
def decorated(): pass
class WORKER:
    def __init__(self, cfgs, run_name, Gen, Gen_mapping, Gen_synthesis, Dis, Gen_ema, Gen_ema_mapping,
                 Gen_ema_synthesis, ema, eval_model, train_dataloader, eval_dataloader, global_rank, local_rank, mu,
                 sigma, real_feats, logger, aa_p, best_step, best_fid, best_ckpt_path, lecam_emas, num_eval,
                 loss_list_dict, metric_dict_during_train):
        ((images, labels),) = train_dataloader
        assert len(images) == len(labels) == cfgs.OPTIMIZATION.batch_size and global_rank != 0
        self.turns = []
    def prepare_train_iter(self, epoch_counter): pass
    def train_discriminator(self, current_step): self.turns.append("D")
    def train_generator(self, current_step):
        assert self.turns.pop() == "D"
        print("step")
"""
STUDIO_CONFIG = """
from types import SimpleNamespace
class Configurations:
    def __init__(self, file):
        open(file).close()
        for name in "DATA OPTIMIZATION MODEL STYLEGAN MODULES RUN".split():
            setattr(self, name, SimpleNamespace())
    def update_cfgs(self, cfgs, super):
        vars(getattr(self, super)).update(cfgs)
    def define_modules(self): pass
    def define_optimizer(self, Gen, Dis): pass
"""
STUDIO_MODEL = """
import torch
def load_generator_discriminator(DATA, OPTIMIZATION, MODEL, STYLEGAN, MODULES, RUN, device, logger):
    assert not MODEL.apply_g_ema and not RUN.mixed_precision and device == "cpu"
    return torch.nn.Linear(2, 3), None, None, torch.nn.Linear(3, 1), None, None, None, None
"""
LIPIZZANER_TRAINER = """
import torch
from types import SimpleNamespace
from pymongo import MongoClient
from helpers.configuration_container import ConfigurationContainer
class DbLogger:
    def __init__(self, current_experiment): MongoClient(current_experiment)
def population(*sizes):
    genome = SimpleNamespace(net=torch.nn.Linear(*sizes))
    return SimpleNamespace(individuals=[SimpleNamespace(genome=genome)])
class LipizzanerGANTrainer:
    def __init__(self, dataloader, network_factory):
        self.db_logger, self.dataloader = DbLogger(current_experiment=None), dataloader
        self.population_gen, self.population_dis = population(2, 3), population(3, 1)
    def train(self, n_iterations):
        loaded = self.dataloader.load()
        images, labels = next(iter(loaded))
        assert len(loaded) >= self.dataloader.n_batches and self.log_results(iteration=0) == (None, None)
        assert self.dataloader.transpose_data(images).shape == (100, 784) and images.min() == -1
        print("step")
"""
LIPIZZANER_CONTAINER = """
import importlib
class ConfigurationContainer:
    class_maps = {"lipizzaner_gan": ("training.ea.lipizzaner_gan_trainer", "LipizzanerGANTrainer"),
                  "four_layer_perceptron": ("builtins", "int")}
    _one = None
    @classmethod
    def instance(cls):
        cls._one = cls._one or cls()
        return cls._one
    def create_instance(self, name, *arguments):
        module, kind = self.class_maps[name]
        return getattr(importlib.import_module(module), kind)(*arguments)
"""
FILES = {
    "pix2pix": {"models/pix2pix_model.py": PIX2PIX},
    "biggan_pytorch": {"BigGAN.py": BIGGAN, "utils.py": BIGGAN_UTILS, "train_fns.py": BIGGAN_TRAIN},
    "studiogan": {
        "src/worker.py": STUDIO_WORKER,
        "src/config.py": STUDIO_CONFIG,
        "src/models/model.py": STUDIO_MODEL,
        **{f"src/configs/CIFAR10/{name}.yaml": "" for name in ("DCGAN", "SNGAN", "BigGAN")},
    },
    "lipizzaner": {
        "src/training/ea/lipizzaner_gan_trainer.py": LIPIZZANER_TRAINER,
        "src/helpers/configuration_container.py": LIPIZZANER_CONTAINER,
        "src/distribution/client_environment.py": "class ClientEnvironment: port = None",
    },
}


def write(peer: str, folder: Path) -> None:
    """Write the stand-in of a peer."""
    for name, text in FILES[peer].items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
