"""Fashion-MNIST: 28x28 grey images of ten classes of clothing, in the file format of MNIST.

Source: H. Xiao, K. Rasul, R. Vollgraf, "Fashion-MNIST: a novel image dataset for benchmarking
machine learning algorithms", 2017, arXiv 1708.07747; licence MIT.
"""

from paragan.datasets._mnist_files import MnistFiles
from paragan.datasets._options import IdxOptions as Options

__all__ = ["Options", "source"]

_CLASS_NAMES = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)
_FILES = MnistFiles(
    "fashion_mnist",
    _CLASS_NAMES,
    "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion",
    [
        (26421880, "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"),
        (29515, "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"),
        (4422102, "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"),
        (5148, "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"),
    ],
)
source = _FILES.source
