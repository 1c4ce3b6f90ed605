"""Batches in a seeded order, read and decoded ahead by threads; for any training loop (`pg.loading`)."""

from paragan.loading.control_law import LoadingStatistics as LoadingStatistics
from paragan.loading.tensor_batches import TensorBatches as TensorBatches, open_images as open_images
