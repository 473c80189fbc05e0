"""A real browser for tests: Chromium without a window, driven through a pipe by its protocol."""

import itertools
import json
import os
import subprocess
import sys
import time
from base64 import b64decode
from pathlib import Path

# Keys that do more than write a letter.
NUMBERS = {
    "Enter": 13, "Escape": 27, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40,
}  # fmt: skip


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
        self._targets = []
        self.errors = []
        self.requests = []  # addresses of everything that pages asked for

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
            self._note(heard.get("method"), heard.get("params", {}))
            if heard.get("method") == "Page.javascriptDialogOpening":
                self._answer_dialog(heard["sessionId"])

    def _note(self, method, params):
        written = method == "Runtime.consoleAPICalled" and params["type"] in ("error", "assert")
        if method in ("Runtime.exceptionThrown", "Log.entryAdded") or written:
            self.errors.append(params)
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])

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
        self._targets.append(target)
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        tab = Tab(self, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            tab.call(f"{domain}.enable")
        tab.go(url)
        return tab

    def close_tabs(self) -> None:
        """Close every page and forget what went wrong in them."""
        there = {info["targetId"] for info in self.call("Target.getTargets")["targetInfos"]}
        for target in there.intersection(self._targets):  # a test may have closed its own
            self.call("Target.closeTarget", targetId=target)
        self._targets.clear()
        self.errors.clear()
        self.requests.clear()

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

    def pointer(self, selector, *kinds) -> None:
        """Put the pointer on the middle of an element, and do with it what `kinds` say."""
        self.run(f"{selector}.scrollIntoView({{ block: 'center', behavior: 'instant' }})")
        box = self.run(f"{selector}.getBoundingClientRect().toJSON()")
        where = {"x": box["x"] + box["width"] / 2, "y": box["y"] + box["height"] / 2}
        self.call("Input.dispatchMouseEvent", type="mouseMoved", **where)
        for kind in kinds:
            self.call("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **where)

    def click(self, selector) -> None:
        """Click on the element that an expression names."""
        self.pointer(selector, "mousePressed", "mouseReleased")

    def be(self, dark: bool) -> None:
        """Prefer dark pages, or light ones."""
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[feature])

    def be_a_phone(self, dark: bool) -> None:
        """390 × 800 pixels, dark or light."""
        self.be(dark)
        size = {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": True}
        self.call("Emulation.setDeviceMetricsOverride", **size)

    def shot(self, path: Path, dark=False) -> None:
        self.be(dark)
        path.write_bytes(b64decode(self.call("Page.captureScreenshot", format="png")["data"]))
