"""What a grid on several processes is refused for: one line, and exit code 2."""

import json
import re
import threading

import pytest

from paragan.cli.main import main
from paragan.config import read_recipe
from paragan.core.errors import ConfigError, RankError
from paragan.core.interrupt import Interrupt
from paragan.distributed.launch import rank_env
from paragan.distributed.launch.rank_env import RankEnv
from paragan.extensions.grid import runner as grid_runner
from paragan.extensions.grid.build import coordinator as workers
from paragan.extensions.grid.build.worker import join_coordinator
from paragan.extensions.grid.runner import GridRunner, run_worker, with_num_workers
from paragan.extensions.grid.workers import handshake
from paragan.runs.run_request import RunRequest

WORDS = ("train.threads=1", "grid.shape=2x2", "evaluation.features=null")


def config(*words):
    return read_recipe("digits", [*WORDS, *words])


def start(tmp_path, *words, place=None):
    return GridRunner().start(
        RunRequest(config=config(*words), name="digits", out=tmp_path / "run", place=place, overrides=words)
    )


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    for names in rank_env._MPI_NUMBERS:
        for name in names:
            monkeypatch.delenv(name, raising=False)


def test_mpi_needs_its_launcher(tmp_path):
    with pytest.raises(ConfigError) as found:
        start(tmp_path, "transport=mpi", "workers=4")
    assert str(found.value) == (
        "transport=mpi requires mpiexec; put `mpiexec -n 5` before the command, one process for each worker "
        "and one for the coordinator, or use transport=gloo"
    )
    assert found.value.exit_code == 2 and not (tmp_path / "run").exists()
    with pytest.raises(ConfigError, match="transport=mpi does not work under torchrun; use transport=gloo, or mpiexec"):
        start(tmp_path, "transport=mpi", place=RankEnv(rank=0, size=3, local_rank=0, local_size=3))


def test_more_workers_than_cells(tmp_path):
    with pytest.raises(ConfigError, match="workers: 5 workers are too many for a grid of 4 cells; use at most 4"):
        workers.evolution_on_workers(config("workers=5"), tmp_path, print, lambda: False)


def test_gloo_under_mpiexec_is_reported_once(tmp_path, monkeypatch):
    monkeypatch.setenv("PMI_SIZE", "4")
    monkeypatch.setenv("PMI_RANK", "0")
    with pytest.raises(ConfigError, match="transport=gloo does not work in 4 processes of mpiexec; use transport=mpi"):
        start(tmp_path)
    monkeypatch.setenv("PMI_RANK", "2")
    assert start(tmp_path) == 2  # without a word


def processes(rank=0, size=2, received="", sent=None):
    """Processes that a launcher started. sent: the texts that rank 0 has broadcast."""
    sent = [] if sent is None else sent
    return handshake.ExternalWorkers(
        rank=rank, size=size, broadcast_text=sent.append, receive_text=lambda: received or sent[0]
    )


def test_another_number_of_processes_than_workers():
    with pytest.raises(ConfigError, match="workers=4 does not fit 3 processes, which are 2 workers and the coord"):
        with_num_workers(config("workers=4"), processes(size=3))
    assert with_num_workers(config(), processes(size=3)).workers == 2


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ["grid.shape=2x2", "grid.heartbeat_s=150"],
            "grid.heartbeat_s=150 must be less than half of train.timeout_s=300",
        ),
        (["workers=2"], "workers=2 needs a grid; set grid.shape, or pass devices=2"),
        *(
            (["grid.shape=2x2", f"coordinator={json.dumps(address)}"], "coordinator must be HOST:PORT, such as ")
            for address in ("here", "127.0.0.1", ":80", "127.0.0.1:http", "a b:1")
        ),
    ],
)
def test_settings_that_no_grid_has(words, told):
    with pytest.raises(ConfigError, match=told):
        read_recipe("digits", words)


class TestOffer:
    """A worker's code, libraries and config have to be the coordinator's."""

    RUN = "the config"

    def test_one_of_the_same_fits(self):
        assert handshake.incompatibility(handshake.worker_info("cpu"), self.RUN) == ""
        assert handshake.incompatibility(handshake.worker_info("cpu", self.RUN), self.RUN) == ""

    @pytest.mark.parametrize(
        ("key", "said"),
        [
            ("code", r"its paragan code 0 differs from the coordinator.s .*; install the same version on both hosts"),
            ("torch", "its torch 0 differs from the coordinator's .*; install the same version"),
            ("config", "its config differs from the coordinator's; use the same command and files"),
        ],
    )
    def test_another_does_not(self, key, said):
        about = {**handshake.worker_info("cpu", self.RUN), key: "0"}
        assert re.match(said, handshake.incompatibility(about, self.RUN))

    def test_one_that_says_nothing_does_not(self):
        assert handshake.incompatibility({}, self.RUN).startswith("its paragan code None differs")

    def test_the_code_is_all_of_it(self, tmp_path, monkeypatch):
        before = handshake.code_digest.__wrapped__()
        (tmp_path / "__init__.py").write_text("")
        monkeypatch.setattr(handshake.paragan, "__file__", str(tmp_path / "__init__.py"))
        assert handshake.code_digest.__wrapped__() != before


class TestWorker:
    """What `paragan worker` says when it cannot take part."""

    def test_no_address(self, capfd):
        assert main(["worker", "nowhere"]) == 2
        assert "worker: 'nowhere' is not HOST:PORT; use the address" in capfd.readouterr().err

    def test_no_token(self, capfd, monkeypatch):
        monkeypatch.delenv("PARAGAN_TOKEN", raising=False)
        monkeypatch.delenv("PARAGAN_TOKEN_FILE", raising=False)
        assert main(["worker", "127.0.0.1:1"]) == 2
        assert "PARAGAN_TOKEN or PARAGAN_TOKEN_FILE is required" in capfd.readouterr().err

    def test_refused_worker_gets_the_reason(self, tmp_path, monkeypatch):
        said = []
        server = workers._CoordinatorServer(config(), tmp_path, said.append, None, None, None)
        monkeypatch.setattr(workers, "incompatibility", lambda theirs, text: "found another moon, expected this one")
        over = threading.Event()

        def accept():
            while not over.is_set():
                assert server._accept() is None
                over.wait(0.02)

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            with pytest.raises(
                ConfigError, match=r"refused by the coordinator at .*: found another moon, expected this one"
            ):
                join_coordinator(server.token, *server.listener.address, lambda text: None)
        finally:
            over.set()
            thread.join(5)
            server.listener.close()
        assert len(said) == 1 and said[0].endswith("was refused: found another moon, expected this one")


class TestCompany:
    def test_refusal_reaches_the_worker(self):
        sent = []
        first = processes(sent=sent)
        assert not first.has_broadcast
        first.broadcast({"token": "t", "port": 3})
        assert first.has_broadcast and processes(rank=1, sent=sent).receive() == {"token": "t", "port": 3}

    def test_what_is_none_is_refused(self):
        with pytest.raises(RankError, match="rank 0 sent no address of its coordinator"):
            processes(rank=1, received="[1]").receive()

    def test_where_the_first_could_not_begin_the_others_end(self):
        assert run_worker(config(), processes(rank=1, received="{}")) == 0

    def test_failure_of_the_first_rank_reaches_the_others(self, tmp_path):
        sent = []
        request = RunRequest(config=config(), name="digits", out=tmp_path / "run")
        with pytest.raises(ConfigError, match="5 workers are too many for a grid of 4"):
            grid_runner._train_together(request, processes(size=6, sent=sent), Interrupt())
        assert sent == ["{}"]


@pytest.mark.parametrize(
    ("env", "found"),
    [
        ({}, None),
        ({"PMI_RANK": "0", "PMI_SIZE": "1"}, None),
        ({"PMI_RANK": "3", "PMI_SIZE": "4"}, (3, 4)),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, (1, 2)),
        ({"PMI_RANK": "x", "PMI_SIZE": "4"}, None),
    ],
)
def test_which_process_of_mpiexec(env, found):
    assert rank_env.mpi_rank_and_size(env) == found
