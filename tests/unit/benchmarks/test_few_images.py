"""Benchmark of 100 images: which samples are copies."""

import numpy as np
from PIL import Image

from benchmarks.few_images import SIZE, nearest_distances, pixels


def test_a_copy_is_nearer_than_two_training_images_are_to_each_other(tmp_path):
    for number, grey in enumerate((0, 10, 30)):
        Image.new("RGB", (2 * SIZE, 2 * SIZE), (grey, grey, grey)).save(tmp_path / f"{number}.png")
    images = pixels(tmp_path)
    assert images.shape == (3, 3 * SIZE * SIZE)
    between = nearest_distances(images, images, skip_itself=True)
    np.testing.assert_allclose(between, [10, 10, 20])
    samples = np.stack([images[2] + 3, images[2] + 40])
    nearest = nearest_distances(samples, images)
    np.testing.assert_allclose(nearest, [3, 40], rtol=1e-6)
    assert (nearest < between.min()).tolist() == [True, False]
