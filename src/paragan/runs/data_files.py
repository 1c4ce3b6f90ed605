"""Whether the files of a run's data exist, asked before torch is imported, which takes seconds."""

from pathlib import Path

from paragan.core.addresses import is_url
from paragan.core.errors import DataError
from paragan.datasets._options import AudioOptions, FolderOptions


def check_data_files(options: object) -> None:
    """Raise `DataError` for data that do not exist. options: of a data set."""
    kind: type = type(options)
    path = getattr(options, "path", "")
    labels = getattr(options, "labels", None)
    if not (path or isinstance(options, FolderOptions)):
        return  # data without files: without imports
    from paragan.config.reference import meanings
    from paragan.datasets.base.label_files import check_label_table
    from paragan.datasets.base.open_images import check_path, describe_missing

    if isinstance(options, FolderOptions) or (isinstance(options, AudioOptions) and path):
        check_path(path)
    elif path and not is_url(path) and not Path(path).exists():
        raise DataError(f"data.path: {describe_missing(path)}; pass data.path=PATH: {meanings(kind)['path']}")
    if isinstance(labels, str):
        check_label_table(labels, path)
