"""Fashion-MNIST: 28x28 grey images of ten classes of clothing, in the file format of MNIST.

Source: H. Xiao, K. Rasul, R. Vollgraf, "Fashion-MNIST: a novel image dataset for benchmarking
machine learning algorithms", 2017, arXiv 1708.07747; licence MIT.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from paragan.core.source import Source
from paragan.datasets import _mnist_files
from paragan.datasets._options import IdxOptions

_CLASS_NAMES = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)
_REMOTES = _mnist_files.remote_files(
    "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion",
    [
        (26421880, "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"),
        (29515, "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"),
        (4422102, "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"),
        (5148, "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"),
    ],
)


@dataclass(frozen=True)
class Options(IdxOptions):
    """Location of the files and size of the images."""


def source(options: Options, split: Literal["train", "held_out"]) -> Source:
    """Return the 60,000 training or the 10,000 test images, (1, size, size).

    Raises `DataError` if a file is missing or truncated, or has other content than its name says.
    """
    return _mnist_files.source("fashion_mnist", options.path, options.size, split, _CLASS_NAMES, _REMOTES)
