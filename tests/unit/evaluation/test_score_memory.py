"""`score` of 50,000 images: their features are in memory, the images are not."""

import io
import subprocess
import sys
import zipfile

import numpy as np
import pytest
from PIL import Image

NUM = 50_000
MIB = 1 << 20
MEASURE = """
import sys
import torch
from paragan.evaluation import folder_scores
from paragan.features.base.extractor import FeatureExtractor

class Means(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))
    def forward(self, x):
        return torch.nn.functional.adaptive_avg_pool2d(x, 4).flatten(1) * self.weight

def peak():
    return next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith("VmHWM"))

extractor = FeatureExtractor(
    name="means", network=Means(), shape=(3, 64, 64), num_classes=None, sha256="", takes_any_size=True
)
folder_scores.read_images(sys.argv[1], extractor)
before = peak()
images = folder_scores.read_images(sys.argv[2], extractor)
print(peak() - before, len(images.features), folder_scores.compare(images, images, ["fd"])["fd"])
"""


def archive(path, num):
    """Images of 64 px that differ in brightness: 12 kB each in memory, 600 MB in all."""
    with zipfile.ZipFile(path, "w") as file:
        for number in range(num):
            content = io.BytesIO()
            Image.new("RGB", (64, 64), tuple(int(v) for v in np.random.default_rng(number).integers(0, 256, 3))).save(
                content, "PNG", compress_level=1
            )
            file.writestr(f"{number // 1000}/{number}.png", content.getvalue())


@pytest.mark.slow
def test_fifty_thousand_images_are_scored_in_the_memory_of_their_features(tmp_path):
    for name, num in (("few.zip", 200), ("many.zip", NUM)):
        archive(tmp_path / name, num)
    words = [sys.executable, "-c", MEASURE, str(tmp_path / "few.zip"), str(tmp_path / "many.zip")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    growth, count, distance = done.stdout.split()
    assert int(count) == NUM
    assert float(distance) < 1e-6
    features = NUM * 48 * 4  # bytes
    assert int(growth) < 4 * features + 96 * MIB  # with names, and moments in float64; images would be 600 MB
