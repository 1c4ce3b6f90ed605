"""Fetching files: from a server on this machine, good and bad. Nothing wrong is ever kept."""

import hashlib
import re
import threading
import time
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from paragan.datasets import cifar10, fashion_mnist, mnist
from paragan.storage import download as storage_download
from paragan.storage.download import RemoteFile, download
from tests.data_refusals import refusal

CONTENT = bytes(range(256)) * 4000
SUM = hashlib.sha256(CONTENT).hexdigest()


@contextmanager
def serving(body=CONTENT, status=200, declared=None, silence_s=0):
    """A server that always gives this answer; yields its URL and the list of paths asked for."""
    asked = []

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_response(status)
            if declared != "none":
                self.send_header("Content-Length", str(len(body) if declared is None else declared))
            self.end_headers()
            time.sleep(silence_s)
            with suppress(OSError):  # the other side may have left
                self.wfile.write(body)

        def log_message(self, *words):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/data.gz", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PARAGAN_CACHE", str(tmp_path))
    monkeypatch.delenv("PARAGAN_OFFLINE", raising=False)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def refused(cache, remote):
    message = refusal(lambda: download(remote, "set"))
    assert "data.path=DIR" in message
    assert [path for path in cache.rglob("*") if path.is_file()] == []
    return message


def test_file_is_downloaded_once(cache):
    with serving() as (url, asked):
        paths = {download(RemoteFile(url, len(CONTENT), SUM), "set") for _ in range(2)}
    assert asked == ["/data.gz"]
    assert paths == {cache / "set" / "data.gz"}
    assert paths.pop().read_bytes() == CONTENT
    assert len(list((cache / "set").iterdir())) == 1


def test_truncated_file_in_cache_is_downloaded_again(cache):
    (cache / "set").mkdir()
    (cache / "set" / "data.gz").write_bytes(CONTENT[:50])
    with serving() as (url, _):
        assert download(RemoteFile(url, len(CONTENT), SUM), "set").read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("served", "problem"),
    [
        ({"body": CONTENT[::-1]}, f"instead of {SUM[:16]}"),
        ({"body": CONTENT[:1000]}, "it has 1,000 bytes"),
        ({"body": CONTENT[:1000], "declared": "none"}, "it has 1,000 bytes"),
        ({"body": CONTENT[:1000], "declared": len(CONTENT)}, "IncompleteRead|it has 1,000 bytes"),
        ({"body": CONTENT + CONTENT}, "more than the expected 1,024,000 bytes"),
        ({"body": CONTENT + CONTENT, "declared": "none"}, "more than the expected 1,024,000 bytes"),
        ({"status": 404}, "HTTP status 404"),
    ],
    ids=["other", "shorter", "shorter-undeclared", "cut", "longer", "longer-undeclared", "missing"],
)
def test_another_download_is_refused_and_not_kept(cache, served, problem):
    with serving(**served) as (url, _):
        assert re.search(problem, refused(cache, RemoteFile(url, len(CONTENT), SUM)))


def test_silent_server_times_out(cache, monkeypatch):
    monkeypatch.setattr(storage_download, "_READ_TIMEOUT_S", 0.2)
    with serving(silence_s=1) as (url, _):
        assert "timed out" in refused(cache, RemoteFile(url, len(CONTENT), SUM))


def test_download_offline_sends_no_request(cache, monkeypatch):
    monkeypatch.setenv("PARAGAN_OFFLINE", "1")
    with serving() as (url, asked):
        assert "PARAGAN_OFFLINE" in refused(cache, RemoteFile(url, len(CONTENT), SUM))
    assert asked == []


@pytest.mark.parametrize("module", [mnist, fashion_mnist, cifar10])
def test_data_sets_without_path_name_the_file_to_download(cache, monkeypatch, module):
    monkeypatch.setenv("PARAGAN_OFFLINE", "1")
    message = refusal(lambda: module.source(module.Options(), "train"))
    assert re.search(r"get .*\.gz yourself and pass its folder: data\.path=DIR", message)


def test_data_set_is_read_from_the_cache(cache, monkeypatch, data_root):
    (cache / "mnist").mkdir()
    for path in (data_root / "mnist").glob("t10k*.gz"):
        (cache / "mnist" / path.name).write_bytes(path.read_bytes())
    sizes = {path.stem: path.stat().st_size for path in (cache / "mnist").iterdir()}
    remotes = {stem: RemoteFile(f"http://127.0.0.1:9/{stem}.gz", size, "") for stem, size in sizes.items()}
    monkeypatch.setattr(mnist._FILES, "_remotes", remotes)
    assert len(mnist.source(mnist.Options(), "held_out")) == 10_000
