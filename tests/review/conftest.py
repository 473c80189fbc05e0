"""A small run to review, and a real server for it."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from anedl.files import write_json
from anedl.intake.cache import build_cache
from anedl.intake.listing import Item
from anedl.triage.table import write_table
from anedl.triage.verdict import Rules, gather, judge

CLASSES = ("cat", "dog", "fox")
MOST_FILES = 1500  # the images of a very large pile share these


def make_run(folder: Path, count: int = 60) -> Path:
    """A folder as `anedl fit` leaves it, as far as a review looks: all states, two clusters."""
    rng = np.random.default_rng(7)
    pile, run = folder / "pile", folder / "run"
    pile.mkdir(parents=True)
    run.mkdir()
    items = [Item(folder / "labelled.png", "000.png", "cat")]  # bears the name of a pile image
    Image.new("RGB", (16, 16), (0, 0, 0)).save(items[0].path)
    for i in range(count):
        path = pile / f"{i % MOST_FILES:03}.png"
        if i < MOST_FILES:
            Image.new("RGB", (16, 16), (i % 250 + 1, 40 * (i % 6), 200)).save(path)
        items.append(Item(path, f"{i:03}.png", None))
    build_cache(items, run / "cache", 16)
    group = np.full(count, -1)
    group[[2, 8, 14]] = 4
    triage = judge(
        gather(
            [item.name for item in items[1:]],
            rng.dirichlet(np.full(3, 0.4), count),
            score=rng.normal(size=count),
            p_value=np.where(np.arange(count) % 3 == 0, 0.01, rng.uniform(0.1, 1, count)),
            epistemic=rng.uniform(size=count),
            aleatoric=rng.uniform(size=count),
            duplicate_group=group,
            class_names=CLASSES,
        ),
        Rules(level=0.05, confidence=0.9),
    )
    cluster = np.full(count, -1)
    unknown = triage.where("unknown")
    cluster[unknown[:6]], cluster[unknown[6:10]] = 1, 2
    write_table(run, triage.with_clusters(cluster))
    write_json(run / "fit.json", {"pollution": {"share": 0.3, "low": 0.2, "high": 0.45}})
    return run


@pytest.fixture(scope="session")
def run_once(tmp_path_factory):
    """One run for tests that change nothing in it."""
    return make_run(tmp_path_factory.mktemp("once"))


@pytest.fixture
def run_folder(tmp_path):
    return make_run(tmp_path)


class Client:
    """Asks a server, as a page or as someone who is none."""

    run: Path
    port: int
    token: str

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/{self.token}/"

    def ask(self, path, body=None, headers=None, token=None, absolute=False):
        """The status, headers and content of the answer to one request."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        target = path if absolute else f"/{token or self.token}/{path}"
        given = {"Origin": f"http://127.0.0.1:{self.port}"} if body is not None else {}
        given |= headers or {}
        method = "GET" if body is None else "POST"
        content = None if body is None else json.dumps(body)
        connection.request(method, target, content, {k: v for k, v in given.items() if v})
        response = connection.getresponse()
        answer = response.status, dict(response.getheaders()), response.read()
        connection.close()
        return answer

    def json(self, path, body=None):
        status, _, content = self.ask(path, body)
        assert status == 200, content
        return json.loads(content)

    def wait(self) -> None:
        """Wait until it answers; the address is known a moment before."""
        for _ in range(200):
            try:
                self.ask("state")
                return
            except ConnectionRefusedError:
                time.sleep(0.02)


class Command(Client):
    """`anedl review` as a person starts it."""

    def __init__(self, run: Path, cache: Path, *words: str) -> None:
        self.run = run
        command = [sys.executable, "-m", "anedl", "review", str(run), *words]
        environment = os.environ | {"ANEDL_CACHE": str(cache), "PYTHONWARNINGS": "error"}
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
        for line in self.process.stdout:
            if found := re.search(r"http://127\.0\.0\.1:(\d+)/([\w-]+)/", line):
                self.port, self.token = int(found[1]), found[2]
                break
        else:
            raise AssertionError(self.process.stderr.read())
        self.wait()

    def kill(self) -> None:
        self.process.kill()
        self.close()

    def stop(self) -> str:
        """End it as a person does, and return what it said last."""
        self.process.send_signal(signal.SIGINT)
        said, complaints = self.process.communicate(timeout=10)
        assert not complaints
        assert self.process.returncode == 0
        return said

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


class Served(Client):
    """The same in this process: quick to start, but it cannot be killed."""

    def __init__(self, run: Path) -> None:
        import uvicorn

        from anedl.review.server import create_app
        from anedl.review.session import Review

        bound = socket.create_server(("127.0.0.1", 0))
        self.run, self.token, self.port = run, "t" * 32, bound.getsockname()[1]
        app = create_app(Review(run), self.token, self.port)
        config = uvicorn.Config(app, log_level="error", lifespan="off", ws="none")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([bound],))
        self._thread.start()
        self._bound = bound
        self.wait()

    def close(self) -> None:
        self._server.should_exit = self._server.force_exit = True
        self._thread.join()
        self._bound.close()


def serving(run: Path):
    """A server of that run for as long as a fixture lasts."""
    pytest.importorskip("starlette")
    pytest.importorskip("uvicorn")
    served = Served(run)
    yield served
    served.close()


@pytest.fixture
def start(tmp_path):
    """Start the command; it ends with the test."""
    pytest.importorskip("starlette")
    pytest.importorskip("uvicorn")
    started = []

    def start_command(run, *words):
        started.append(Command(run, tmp_path / "cache", *words))
        return started[-1]

    yield start_command
    for command in started:
        command.close()


@pytest.fixture
def server(run_folder):
    yield from serving(run_folder)


@pytest.fixture
def many(tmp_path):
    """A server with more doubtful images than fit the page."""
    yield from serving(make_run(tmp_path, 300))


@pytest.fixture
def huge(tmp_path):
    """A server with a very large pile."""
    yield from serving(make_run(tmp_path, 100_000))


@pytest.fixture(scope="module")
def shared(run_once):
    """A server for tests that change nothing."""
    yield from serving(run_once)
