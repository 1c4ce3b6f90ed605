"""`paragan serve` of generators that take files: the answer is the file that `apply` writes; others are one line."""

import http.client
import io
import select
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import numpy as np
import pytest
from PIL import Image

import paragan as pg
from paragan.cli.main import main
from paragan.core.tensor_game import LATENT
from paragan.export.tensor_sampler import TensorSampler
from paragan.extensions.serving import file_page, sample_server
from tests.served_runs import serving, train
from tests.unit.export.image_runs import noise

soundfile = pytest.importorskip("soundfile")
pytest.importorskip("soxr")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("served")


@pytest.fixture(scope="module")
def superres(root):
    with serving(pg.load(train(root, "superres"))) as server:
        yield server


@pytest.fixture(scope="module")
def translate(root):
    with serving(pg.load(train(root, "translate"))) as server:
        yield server


@pytest.fixture(scope="module")
def codec(root):
    with serving(pg.load(train(root, "codec"))) as server:
        yield server


def request(server, path, content=None, headers=()):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=60)
    method = "GET" if content is None else "POST"
    connection.request(method, f"/{server.secret}/{path}", content, {"Host": "localhost", **dict(headers)})
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, answer.headers["Content-Type"], body


def refusal(server, content, path="apply", headers=()):
    """The line of a request that is refused; the server answers others after it."""
    status, kind, body = request(server, path, content, headers)
    assert (status, kind) == (400, "text/plain; charset=utf-8")
    assert body.endswith(b"\n") and body.count(b"\n") == 1 and b"Traceback" not in body
    assert request(server, "")[0] == 200
    return body.decode()


def encoded(image, kind):
    file = io.BytesIO()
    image.save(file, kind)
    return file.getvalue()


def sound(seconds, rate=8000, channels=1, kind="WAV"):
    file = io.BytesIO()
    draws = np.random.default_rng(0).normal(0, 0.1, (int(seconds * rate), channels)).clip(-1, 1)
    soundfile.write(file, draws, rate, format=kind)
    return file.getvalue()


def applied(root, tmp_path, name, file, content, *words):
    """The bytes of the file that `apply` writes."""
    (tmp_path / file).write_bytes(content)
    assert main(["apply", str(root / name), str(tmp_path / file), "--out", str(tmp_path / "out"), *words]) == 0
    [path] = [path for path in (tmp_path / "out").iterdir() if path.suffix not in (".json", ".jsonl")]
    return path.read_bytes()


@pytest.mark.parametrize(("size", "kind"), [((37, 23), "PNG"), ((3, 5), "JPEG"), ((64, 32), "WEBP")])
def test_picture_of_any_size_becomes_the_file_of_apply(superres, root, tmp_path, size, kind):
    content = encoded(noise(*size), kind)
    status, media_type, body = request(superres, "apply", content)
    assert (status, media_type) == (200, "image/png")
    assert Image.open(io.BytesIO(body)).size == (4 * size[0], 4 * size[1])
    assert body == applied(root, tmp_path, "superres", f"photo.{kind.lower()}", content)


def test_each_direction_becomes_the_file_of_apply(translate, root, tmp_path):
    content = encoded(noise(31, 18), "PNG")
    bodies = {name: request(translate, f"apply?direction={name}", content)[2] for name in ("a_to_b", "b_to_a")}
    assert bodies["a_to_b"] != bodies["b_to_a"]
    for name, body in bodies.items():
        (tmp_path / name).mkdir()
        assert body == applied(root, tmp_path / name, "translate", "x.png", content, "--direction", name)
    for path in ("apply", "apply?direction=c", "apply?direction=", "apply?direction=to_a"):
        assert "direction is invalid; pass a_to_b or b_to_a" in refusal(translate, content, path)


def test_direction_of_a_generator_without_is_to_be_left_out(superres):
    answer = refusal(superres, encoded(noise(9, 9), "PNG"), "apply?direction=a_to_b")
    assert answer.endswith("direction is invalid; leave it out\n")


@pytest.mark.parametrize(("rate", "channels", "kind"), [(8000, 1, "WAV"), (22050, 2, "FLAC"), (8000, 1, "MP3")])
def test_sound_becomes_the_file_of_apply(codec, root, tmp_path, rate, channels, kind):
    content = sound(0.7, rate, channels, kind)
    status, media_type, body = request(codec, "apply", content)
    assert (status, media_type) == (200, "audio/wav")
    assert body == applied(root, tmp_path, "codec", f"sound.{kind.lower()}", content)


@pytest.mark.parametrize(
    "content",
    [
        encoded(noise(40, 40), "PNG")[:900],
        encoded(noise(40, 40), "PNG")[:300] + bytes(2000),
        b"",
        b"\x80\x04cos\nsystem\n(S'true'\ntR.",
        sound(0.1),
        b"<svg xmlns='http://www.w3.org/2000/svg'/>",
    ],
)
def test_damaged_picture_or_other_kind_is_refused_in_a_line(superres, content):
    line = refusal(superres, content)
    assert "this file: " in line and "data." not in line and "data check" not in line


@pytest.mark.parametrize(
    "content",
    [sound(0.1)[:30], b"RIFF" + bytes(60), b"", encoded(noise(9, 9), "PNG"), sound(0.1, kind="FLAC")[:200]],
)
def test_damaged_sound_or_other_kind_is_refused_in_a_line(codec, content):
    line = refusal(codec, content)
    assert "this file: " in line and "data." not in line
    assert "archive" not in line and "folder" not in line


def test_file_that_is_too_large_is_refused_before_it_is_read(superres, monkeypatch):
    for size in (file_page.MAX_BYTES + 1, 10**30, -1, "1_0", "x"):
        assert "at most 64 MiB" in refusal(superres, b"", headers={"Content-Length": str(size)})
    monkeypatch.setattr(sample_server, "MAX_BYTES", 10)
    assert "at most" in refusal(superres, b"x" * 11)


def test_picture_whose_output_is_too_large_is_refused(superres, monkeypatch):
    monkeypatch.setattr(file_page, "MAX_SIZE", 4 * 4 * 100)
    assert request(superres, "apply", encoded(noise(10, 10), "PNG"))[0] == 200
    assert "larger than 1,600 pixels" in refusal(superres, encoded(noise(10, 11), "PNG"))
    bomb = encoded(Image.new("1", (9000, 9000)), "PNG")
    assert "too many pixels" in refusal(superres, bomb)


@pytest.mark.parametrize(
    "content",
    [
        sound(1.1),
        sound(0.9, channels=2),  # values that are read
        sound(400, rate=20),  # small, but longer at the rate of training
        sound(2, kind="FLAC"),
    ],
)
def test_sound_that_unpacks_to_too_much_is_refused_before_it_is_read(codec, monkeypatch, content):
    monkeypatch.setattr(file_page, "MAX_SIZE", 8000)
    monkeypatch.setattr("paragan.runs.apply_files.read_part", None)
    assert "more than 8,000 samples" in refusal(codec, content)


def test_two_requests_at_once_run_one_after_the_other_and_both_are_answered(superres, monkeypatch):
    content = [encoded(noise(40, 24, seed), "PNG") for seed in range(4)]
    single = [request(superres, "apply", picture)[2] for picture in content]
    real, running, most = file_page.apply_to_content, [], []

    def slow(*arguments):
        running.append(1)
        most.append(len(running))
        time.sleep(0.1)
        try:
            return real(*arguments)
        finally:
            running.pop()

    monkeypatch.setattr(file_page, "apply_to_content", slow)
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda picture: request(superres, "apply", picture), content))
    assert [body for _, _, body in answers] == single and len(set(single)) == 4
    assert most == [1, 1, 1, 1]


def test_computation_that_takes_too_long_ends_between_tiles_and_says_so(superres, monkeypatch):
    monkeypatch.setattr(sample_server, "_TURN_S", 0.0)
    status, _, body = request(superres, "apply", encoded(noise(40, 24), "PNG"))
    assert (status, body) == (503, b"the file takes too long; cut it into parts\n")
    monkeypatch.undo()
    assert request(superres, "apply", encoded(noise(9, 9), "PNG"))[0] == 200


@pytest.mark.parametrize("pause_s", [2.0, 0.05])
def test_upload_that_stops_or_trickles_is_closed_and_leaves_the_server_free(superres, monkeypatch, pause_s):
    monkeypatch.setattr(sample_server, "_UPLOAD_S", 0.3)
    head = f"POST /{superres.secret}/apply HTTP/1.0\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n"
    with socket.create_connection(superres.server_address, 10) as connection:
        connection.sendall(head.encode())
        with suppress(ConnectionError):
            for _ in range(40):
                connection.sendall(b"x")
                time.sleep(pause_s)
                if connection in select.select([connection], [], [], 0)[0]:
                    break
            assert connection.recv(1) == b""
    assert request(superres, "apply", encoded(noise(9, 9), "PNG"))[0] == 200


@pytest.mark.parametrize(
    ("path", "content", "status"),
    [("images?num=1", None, 404), ("apply", None, 404), ("", b"x", 501), ("other", b"x", 501), ("../run", b"x", 501)],
)
def test_file_page_has_no_other_requests(superres, path, content, status):
    assert request(superres, path, content)[0] == status


@pytest.mark.parametrize(("host", "status"), [("evil.example", 421), ("", 421), ("localhost:9", 200)])
def test_file_of_another_site_is_turned_away(superres, host, status):
    assert request(superres, "apply", encoded(noise(9, 9), "PNG"), {"Host": host})[0] == status


def test_file_without_the_secret_is_forbidden(superres, monkeypatch):
    content = encoded(noise(9, 9), "PNG")
    monkeypatch.setattr(superres, "secret", "another")
    connection = http.client.HTTPConnection("127.0.0.1", superres.server_address[1], timeout=30)
    connection.request("POST", "/guess/apply", content, {"Host": "localhost"})
    assert connection.getresponse().status == 403
    connection.close()


def test_nothing_is_written(codec, root):
    before = sorted((path, path.stat().st_mtime_ns) for path in root.rglob("*"))
    assert request(codec, "apply", sound(0.2))[0] == 200
    refusal(codec, b"x")
    assert sorted((path, path.stat().st_mtime_ns) for path in root.rglob("*")) == before


def test_page_says_what_it_takes(superres, translate, codec):
    pages = [request(server, "")[2] for server in (superres, translate, codec)]
    assert [page.count(b"<audio") for page in pages] == [0, 0, 2]
    assert [page.count(b"<option>") for page in pages] == [0, 2, 0]
    assert all(b'type="file"' in page and b'data-most="67108864"' in page for page in pages)


@pytest.mark.parametrize("inputs", [("mel", "label"), (LATENT,)])
def test_generator_without_one_input_is_refused_in_a_line(codec, root, monkeypatch, capsys, inputs):
    monkeypatch.setattr(TensorSampler, "inputs", inputs)
    assert main(["serve", str(root / "codec"), "--port", "0"]) == 2
    message = capsys.readouterr().err
    assert "serve: this generator takes " in message and message.count("\n") == 1


def test_project_of_a_generator_with_named_inputs_is_refused_in_a_line(codec, root, capsys):
    assert main(["project", str(root / "codec"), "image.png"]) == 2
    assert "project: this generator needs" in capsys.readouterr().err
