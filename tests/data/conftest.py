"""A small HTTP server on the loopback interface that can be told to misbehave."""

import re
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest


@dataclass
class Behaviour:
    """How to answer one request; the default is to answer well."""

    status: int | None = None  # refuse with this status
    stop_after: int | None = None  # close the connection after so many bytes of the body
    honours_range: bool = True
    shift: int = 0  # answer a range request from so many bytes further on
    tells_length: bool = True


@dataclass
class FileServer:
    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    behaviours: list[Behaviour] = field(default_factory=list)  # one a request, then the default
    ranges: list[str | None] = field(default_factory=list)  # the Range header of each request

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        behaviour = self.behaviours.pop(0) if self.behaviours else Behaviour()
        asked = handler.headers.get("Range")
        self.ranges.append(asked)
        body = self.files.get(handler.path.lstrip("/"))
        if behaviour.status is not None or body is None:
            handler.send_error(behaviour.status or 404)
            return
        total, start = len(body), 0
        if asked and behaviour.honours_range:
            start = int(re.fullmatch(r"bytes=(\d+)-", asked)[1]) + behaviour.shift
            if start >= total:
                handler.send_error(416)
                return
            handler.send_response(206)
            handler.send_header("Content-Range", f"bytes {start}-{total - 1}/{total}")
        else:
            handler.send_response(200)
        body = body[start:]
        if behaviour.tells_length:
            handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body[: behaviour.stop_after])
        handler.close_connection = True


@pytest.fixture
def file_server(monkeypatch):
    """Serve `file_server.files` at `file_server.url`."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    state = FileServer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            state.answer(self)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        state.url = f"http://127.0.0.1:{server.server_address[1]}"
        state.behave = lambda **settings: state.behaviours.append(Behaviour(**settings))
        yield state
        server.shutdown()
        thread.join()
