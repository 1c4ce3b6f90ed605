"""`paragan serve`: images of a generator for this machine only; invalid queries are one line."""

from __future__ import annotations

import http.client
import io
import threading
import time

import numpy as np
import pytest
from PIL import Image

from paragan.cli.main import main
from paragan.core.errors import ConfigError
from paragan.runs import report_server, sample_server
from paragan.runs.open_generator import open_generator
from paragan.runs.sample_server import MOST_IMAGES, SampleServer
from paragan.storage.image_sheet import make_sheet
from tests import tiny_run


@pytest.fixture(scope="module")
def sampler(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served") / "run"
    tiny_run.train(folder)
    return open_generator(folder)


@pytest.fixture(scope="module")
def server(sampler):
    with SampleServer(sampler, "a <run>", 0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield server
        server.shutdown()
        thread.join(10)


def fetch(server, path, host="localhost", secret=None):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=30)
    connection.request("GET", f"/{server.secret if secret is None else secret}/{path}", headers={"Host": host})
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, answer.headers, body


def pixels(body):
    return np.asarray(Image.open(io.BytesIO(body)))


def test_sample_server_page_has_classes_and_a_policy(server):
    status, headers, body = fetch(server, "")
    assert status == 200 and b"a &lt;run&gt;" in body and body.count(b"<option") == 11
    assert headers["Content-Security-Policy"].startswith("default-src 'none'; img-src blob: data:; connect-src 'self'")


def test_sample_server_images_are_those_of_sample(server, sampler):
    status, headers, body = fetch(server, "images?seed=3&num=4&class=7&truncation=0.5")
    assert status == 200 and headers["Content-Type"] == "image/png"
    made = sampler.sample(4, labels=7, seed=3, truncation=0.5).tensor
    assert np.array_equal(pixels(body), make_sheet(made, 2, 64)[0].numpy())


def test_sample_server_walk_goes_from_one_seed_to_the_next(server):
    sheets = [
        pixels(fetch(server, f"images?num=1&class=0&{words}")[2]) for words in ("seed=3", "seed=3&walk=1", "seed=4")
    ]
    assert np.abs(sheets[1].astype(int) - sheets[2]).max() <= 1
    assert not np.array_equal(sheets[0], sheets[2])
    between = pixels(fetch(server, "images?num=1&class=0&seed=3&walk=0.5")[2])
    assert not any(np.array_equal(between, other) for other in sheets)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (f"num={MOST_IMAGES + 1}", "num is invalid; pass an integer from 1 to 64"),
        ("seed=-1", "seed is invalid"),
        ("seed=" + "9" * 30, "seed is invalid"),
        ("truncation=0", "truncation must be above 0"),
        ("truncation=x", "truncation is invalid; pass a number from 0 to 1"),
        ("walk=nan", "walk is invalid"),
        ("class=eleven", "class: unknown class 'eleven'"),
        ("class=10", "class: unknown class '10'"),
        ("path=/etc/passwd", "the query has an unknown or repeated name"),
        ("seed=1&seed=2", "the query has an unknown or repeated name"),
        ("seed", "the query is invalid"),
    ],
)
def test_sample_server_invalid_query_is_one_line(server, query, message):
    status, _, body = fetch(server, f"images?{query}")
    assert status == 400 and message in body.decode() and body.count(b"\n") == 1


def test_sample_server_answer_that_takes_long_arrives(server, sampler, monkeypatch):
    monkeypatch.setattr(report_server, "_REQUEST_S", 0.2)
    real = sampler.generate

    def slow(_, *args, **options):
        time.sleep(1)
        return real(*args, **options)

    monkeypatch.setattr(type(sampler), "generate", slow)
    assert fetch(server, "images?num=1")[0] == 200


def test_sample_server_error_is_an_answer_and_a_line_of_the_terminal(server, sampler, monkeypatch, capsys):
    def fails(*args, **options):
        raise RuntimeError("out of\nmemory")

    with monkeypatch.context() as patched:
        patched.setattr(type(sampler), "generate", fails)
        status, _, body = fetch(server, "images?num=1")
    assert status == 500 and body.startswith(b"cannot make images; see the terminal of ")
    assert capsys.readouterr().err == "cannot make images: RuntimeError: out of memory\n"
    assert fetch(server, "images?num=1")[0] == 200


def test_sample_server_wait_for_others_ends(server, monkeypatch, capsys):
    monkeypatch.setattr(sample_server, "_TURN_S", 0.1)
    with server.running:
        assert fetch(server, "images?num=1")[0] == 500
    assert capsys.readouterr().err == "cannot make images: TimeoutError: other requests took 0.1 s\n"


def test_sample_server_refuses_other_hosts_secrets_and_pages(server):
    assert fetch(server, "", host="example.com")[0] == 421
    assert fetch(server, "", secret="guess")[0] == 403
    assert fetch(server, "../run")[0] == 404
    assert server.server_address[0] == "127.0.0.1"


def test_sample_server_of_an_image_to_image_generator_is_refused(sampler, monkeypatch):
    monkeypatch.setattr(type(sampler), "takes_condition", True)
    with pytest.raises(ConfigError, match="serve: this generator maps images to images, not latents alone"):
        SampleServer(sampler, "run", 0)


@pytest.mark.parametrize("words", [("serve", "{run}"), ("project", "{run}", "image.png")])
def test_generator_with_named_inputs_is_refused_in_a_line(tmp_path, capsys, words):
    small = ("train.batch=2", "train.kimg=0.002", "every.sample_kimg=0", "evaluation.metrics=null")
    assert main(["train", "codec", *small, "--out", str(tmp_path / "run")]) == 0
    capsys.readouterr()
    assert main([word.format(run=tmp_path / "run") for word in words]) == 2
    assert f"{words[0]}: this generator needs" in capsys.readouterr().err
