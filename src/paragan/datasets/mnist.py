"""MNIST: 28x28 grey images of handwritten digits, from idx files.

Source: Y. LeCun, L. Bottou, Y. Bengio, P. Haffner, "Gradient-based learning applied to document recognition",
Proceedings of the IEEE, 1998. Downloaded from the mirror of the Common Visual Data Foundation.
"""

from paragan.datasets._mnist_files import MnistFiles
from paragan.datasets._options import IdxOptions as Options

__all__ = ["Options", "source"]

_FILES = MnistFiles(
    "mnist",
    tuple("0123456789"),
    "https://storage.googleapis.com/cvdf-datasets/mnist",
    [
        (9912422, "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
        (28881, "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
        (1648877, "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
        (4542, "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
    ],
)
source = _FILES.source
