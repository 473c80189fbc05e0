"""A small run to review, a real server for it, and a real browser to look at it with."""

import http.client
import itertools
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from base64 import b64decode
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
NUMBERS = {"Enter": 13, "Escape": 27}  # keys that do more than write a letter


def make_run(folder: Path, count: int = 60) -> Path:
    """A folder as `anedl fit` leaves it, as far as a review looks: all states, two clusters."""
    rng = np.random.default_rng(7)
    pile, run = folder / "pile", folder / "run"
    pile.mkdir(parents=True)
    run.mkdir()
    items = [Item(folder / "labelled.png", "000.png", "cat")]  # bears the name of a pile image
    Image.new("RGB", (16, 16), (0, 0, 0)).save(items[0].path)
    for i in range(count):
        path = pile / f"{i:03}.png"
        Image.new("RGB", (16, 16), (i % 250 + 1, 40 * (i % 6), 200)).save(path)
        items.append(Item(path, path.name, None))
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
    pytest.importorskip("starlette")
    pytest.importorskip("uvicorn")
    served = Served(run_folder)
    yield served
    served.close()


@pytest.fixture(scope="module")
def shared(run_once):
    """A server for tests that change nothing."""
    pytest.importorskip("starlette")
    pytest.importorskip("uvicorn")
    served = Served(run_once)
    yield served
    served.close()


class Browser:
    """Chromium without a window, driven through a pipe by its own protocol."""

    def __init__(self, program: str, profile: Path, size=(1360, 850)) -> None:
        their_read, our_write = os.pipe()
        our_read, their_write = os.pipe()
        flags = [
            "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run",
            "--disable-dev-shm-usage", "--remote-debugging-pipe", "--disable-extensions",
            "--disable-background-networking", "--disable-component-update",
            f"--user-data-dir={profile}", f"--window-size={size[0]},{size[1]}", "about:blank",
        ]  # fmt: skip
        # The protocol is spoken on descriptors 3 (in) and 4 (out) of the browser.
        plug = (
            "import os, sys; inward, outward = map(int, sys.argv[1:3]); "
            "os.dup2(inward, 1000); os.dup2(outward, 1001); "  # neither is 3 or 4 any more
            "os.dup2(1000, 3); os.dup2(1001, 4); os.execv(sys.argv[3], sys.argv[3:])"
        )
        self.process = subprocess.Popen(
            [sys.executable, "-S", "-c", plug, str(their_read), str(their_write), program, *flags],
            pass_fds=(their_read, their_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(their_read)
        os.close(their_write)
        self._out = os.fdopen(our_write, "wb", buffering=0)
        self._in = os.fdopen(our_read, "rb")
        self._numbers = itertools.count(1)
        self._read_ahead = b""
        self.errors = []

    def call(self, method, session=None, **parameters):
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        self._out.write(json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self._read_ahead:
                chunk = os.read(self._in.fileno(), 1 << 16)
                assert chunk, "the browser has gone"
                self._read_ahead += chunk
            text, _, self._read_ahead = self._read_ahead.partition(b"\0")
            heard = json.loads(text)
            if heard.get("id") == number:
                assert "error" not in heard, heard
                return heard["result"]
            if heard.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded"):
                self.errors.append(heard["params"])
            if heard.get("method") == "Page.javascriptDialogOpening":
                self._answer_dialog(heard["sessionId"])

    def _answer_dialog(self, session):
        message = {
            "id": next(self._numbers),
            "method": "Page.handleJavaScriptDialog",
            "params": {"accept": True},
            "sessionId": session,
        }
        self._out.write(json.dumps(message).encode() + b"\0")

    def open(self, url) -> "Tab":
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        tab = Tab(self, session)
        for domain in ("Page", "Runtime", "Log"):
            tab.call(f"{domain}.enable")
        tab.go(url)
        return tab

    def close(self) -> None:
        if self.process.poll() is None:
            try:
                self.call("Browser.close")
                self.process.wait(5)
            except (AssertionError, OSError, subprocess.TimeoutExpired):
                self.process.kill()
        self.process.wait()
        self._out.close()
        self._in.close()


class Tab:
    """One page in the browser."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser, self._session = browser, session

    def call(self, method, **parameters):
        return self._browser.call(method, self._session, **parameters)

    def go(self, url) -> None:
        self.call("Page.navigate", url=url)

    def reload(self) -> None:
        self.run("window.isOld = true")
        self.call("Page.reload")
        self.until("!window.isOld")

    def run(self, script):
        """The value of an expression in the page."""
        answer = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def until(self, condition, seconds=10):
        """Wait until an expression in the page is true."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                if value := self.run(condition):
                    return value
            except AssertionError:  # a page that is being loaded
                pass
            time.sleep(0.02)
        raise AssertionError(f"never true: {condition}")

    def press(self, *keys, shift=False, ctrl=False) -> None:
        modifiers = 8 * shift + 2 * ctrl
        for key in keys:
            event = {"key": key, "modifiers": modifiers, "code": key if len(key) > 1 else ""}
            text = {"text": key} if len(key) == 1 and not ctrl else {}
            if key in NUMBERS:
                text = {"windowsVirtualKeyCode": NUMBERS[key]}
                text |= {"text": "\r"} if key == "Enter" else {}
            self.call("Input.dispatchKeyEvent", type="keyDown", **event, **text)
            self.call("Input.dispatchKeyEvent", type="keyUp", **event)

    def shot(self, path: Path, dark=False) -> None:
        scheme = "dark" if dark else "light"
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.call("Emulation.setEmulatedMedia", features=[feature])
        path.write_bytes(b64decode(self.call("Page.captureScreenshot", format="png")["data"]))


@pytest.fixture(scope="session")
def browser_program():
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    program = program or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no Chromium is installed")
    return program


@pytest.fixture(scope="module")
def browser(browser_program, tmp_path_factory):
    browser = Browser(browser_program, tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()
