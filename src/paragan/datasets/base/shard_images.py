"""Encoded images in shards that `data prepare` wrote."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from paragan.core.errors import DataError
from paragan.datasets._encoded_images import EncodedImages
from paragan.storage.shard_folder import INDEX, ShardFolder, sample_key


class ShardImages(EncodedImages):
    """Images of a folder of shards; each is compared with its sha256 when read."""

    def __init__(self, folder: ShardFolder, notices: tuple[str, ...] = ()) -> None:
        self.folder = folder
        self.num_train = folder.description.num_train
        self.split_hashes = folder.index["split_hash"]
        self.notices = notices
        names = folder.description.class_names
        if names and not 0 <= (labels := folder.index["label"]).min() <= labels.max() < len(names):
            raise DataError(
                f"{folder.address}/{INDEX}: labels range from {labels.min()} to {labels.max()} for "
                f"{len(names)} classes; the index is damaged: prepare the data again"
            )
        if names:
            self._use_labels(labels, f"{folder.address}/{INDEX}", names)

    def read(self, rows: Sequence[int]) -> list[bytes]:
        """Return the images; neighbours in a remote shard share a request."""
        return self.folder.read_rows(rows)

    def where(self, row: int) -> str:
        """Return shard and sample."""
        return self.folder.where(row)

    def name(self, row: int) -> str:
        """Return the name in the shard."""
        return sample_key(row)

    def stamp(self, row: int) -> str:
        """Return the sha256 of the image."""
        return bytes(self.folder.index["sha256"][row]).hex()

    def _stamps(self) -> Iterator[str]:
        yield self.folder.description.index.sha256
