"""What tests of remote data share: shards behind the proxy, over http and S3."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.storage_emulator import QUIET, Server, forward, read_files, s3_server, serve, upload
from benchmarks.storage_emulator.s3_server import ENVIRONMENT


@dataclass(frozen=True)
class RemoteFolder:
    """One folder behind two proxies. urls and servers: by scheme, `http` and, with obstore and moto, `s3`."""

    urls: dict[str, str]
    servers: dict[str, Server]


@contextmanager
def remote_folder(folder: Path) -> Iterator[RemoteFolder]:
    """Serve a folder over http and S3, without faults; sets the environment of S3."""
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        web = stack.enter_context(serve(QUIET, read_files(folder)))
        urls = {"http": web.url}
        servers = {"http": web}
        if has_s3():
            endpoint = stack.enter_context(s3_server())
            urls["s3"] = upload(folder, endpoint, "bucket", "data/small")
            servers["s3"] = stack.enter_context(serve(QUIET, forward(endpoint)))
            for name, value in {**ENVIRONMENT, "AWS_ENDPOINT_URL": servers["s3"].url}.items():
                patch.setenv(name, value)
        yield RemoteFolder(urls, servers)


def has_s3() -> bool:
    """Whether obstore, moto and its server are installed, as they are with the extra `dev`."""
    from importlib.util import find_spec

    return all(find_spec(name) for name in ("obstore", "moto", "flask_cors"))


def skip_without_s3(scheme: str) -> None:
    """Skip a test of s3:// if it cannot run."""
    if scheme == "s3" and not has_s3():
        pytest.skip("obstore and moto come with the extra `dev`")
