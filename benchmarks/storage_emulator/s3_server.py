"""moto's S3 server on the loopback interface, in a process of its own."""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_START_TIMEOUT_S = 60
_END_TIMEOUT_S = 10
_CODE = """
import logging, sys
from moto.server import ThreadedMotoServer
logging.getLogger("werkzeug").setLevel(logging.ERROR)
server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()  # until the parent ends
"""
_AUTHORIZATION = "AWS4-HMAC-SHA256 Credential=key/20240101/us-east-1/s3/aws4_request"  # names the service
# obstore signs requests; moto accepts any key
ENVIRONMENT = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "a-secret-key", "AWS_REGION": "us-east-1"}


@contextmanager
def s3_server() -> Iterator[str]:
    """Yield the address of an S3 server without buckets."""
    process = subprocess.Popen([sys.executable, "-c", _CODE], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        yield f"http://127.0.0.1:{_read_port(process)}"
    finally:
        process.kill()
        process.communicate(timeout=_END_TIMEOUT_S)


def upload(folder: Path, endpoint: str, bucket: str, prefix: str) -> str:
    """Store the files of a folder in a bucket, which is created; returns their s3:// address."""
    create_bucket(endpoint, bucket)
    for path in sorted(path for path in folder.iterdir() if path.is_file()):
        _put(f"{endpoint}/{bucket}/{prefix}/{path.name}", path.read_bytes())
    return f"s3://{bucket}/{prefix}"


def create_bucket(endpoint: str, bucket: str) -> None:
    """Create an empty bucket."""
    _put(f"{endpoint}/{bucket}", b"")


def _put(url: str, body: bytes) -> None:
    headers = {"Content-Type": "application/octet-stream", "Authorization": _AUTHORIZATION}
    request = urllib.request.Request(url, body, headers, method="PUT")
    with urllib.request.urlopen(request, timeout=_START_TIMEOUT_S) as response:
        response.read()


def _read_port(process: subprocess.Popen[bytes]) -> int:
    assert process.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        if not selector.select(_START_TIMEOUT_S):
            raise TimeoutError("moto's server did not start; is the extra `dev` installed?")
    return int(os.read(process.stdout.fileno(), 64))
