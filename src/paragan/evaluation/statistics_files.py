"""Mean and covariance of features in an .npz file, as programs for FID exchange them."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from paragan.core.errors import ConfigError, DataError
from paragan.features.base.extractor import FeatureExtractor
from paragan.storage import npz

FILE_SUFFIX = ".npz"
_ARRAYS = ("mu", "sigma")  # as these programs name them
_EXTRACTOR = "extractor"
_MAX_VALUE = 1e38  # about the largest float32, in which features are computed
_ROUNDING = 1e-3  # of a covariance in half precision


def has_statistics(path: Path) -> bool:
    """Return whether an .npz file has a mean and a covariance, rather than images."""
    return set(_ARRAYS) <= set(npz.array_names(path))


def read_statistics(path: Path, extractor: FeatureExtractor) -> tuple[Tensor, Tensor]:
    """Return mean (F,) and covariance (F, F) in float64.

    Raises `DataError` for arrays that are none, `ConfigError` for those of another extractor.
    """
    mean, covariance = (_numbers(npz.read_array(path, name), f"{path}: {name}") for name in _ARRAYS)
    num = mean.numel()
    if mean.dim() != 1 or not num or covariance.shape != (num, num) or not _is_covariance(covariance):
        raise DataError(
            f"{path}: mu {tuple(mean.shape)} and sigma {tuple(covariance.shape)} are not a mean and a covariance"
        )
    stated = str(npz.read_array(path, _EXTRACTOR)) if _EXTRACTOR in npz.array_names(path) else _mark(extractor)
    if stated != _mark(extractor):
        raise ConfigError(
            f"{path}: statistics of the features {stated[:100]!r}, not {_mark(extractor)!r}; pass the "
            "--features that it was saved with, or save it again"
        )
    return mean, covariance


def _mark(extractor: FeatureExtractor) -> str:
    """Return what statistics say about the network of their features."""
    return f"{extractor.name} {extractor.sha256}"


def _numbers(array: NDArray[Any], where: str) -> Tensor:
    """Return an array of real numbers in float64, whatever their precision and the order of their bytes."""
    values = array.astype(np.float64) if array.dtype.kind in "iuf" else np.full(1, np.nan)
    if not (np.abs(values) < _MAX_VALUE).all():
        raise DataError(f"{where}: values of {array.dtype}, some of which are not finite in float32; compute it again")
    return torch.from_numpy(values)


def _is_covariance(covariance_FF: Tensor) -> bool:
    """Return whether a matrix is symmetric, with variances of at least 0, but for the rounding of its precision."""
    scale = covariance_FF.abs().max() * _ROUNDING
    asymmetry = (covariance_FF - covariance_FF.T).abs().max()
    return bool(asymmetry <= scale and covariance_FF.diagonal().min() >= -scale)


def check_statistics_path(path: Path) -> None:
    """Raise `ConfigError` unless `save_statistics` can write this file, and `read_statistics` reads it."""
    if path.suffix != FILE_SUFFIX or not path.parent.is_dir() or path.is_dir():
        raise ConfigError(f"--save-stats: cannot write '{path}'; pass a file {FILE_SUFFIX} in a folder that exists")


def save_statistics(path: Path, mean_F: Tensor, covariance_FF: Tensor, extractor: FeatureExtractor) -> None:
    """Write mean and covariance as `mu` and `sigma` of an .npz file, which other programs for FID read.

    `extractor` there names the network, so that statistics of another one are refused.
    """
    arrays = {"mu": mean_F.numpy(), "sigma": covariance_FF.numpy()}
    npz.write_arrays(path, {**arrays, _EXTRACTOR: np.array(_mark(extractor))})
