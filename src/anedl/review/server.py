"""The local server of the review page.

It listens on the loopback interface only. Every address begins with a random token, so other users
and programs of the machine cannot guess it; the `Host` of a request must be this server's, so a
foreign name that resolves to the loopback (DNS rebinding) does not help; and the `Origin`, which a
browser adds to what a foreign page sends, must be this server's as well. Images are asked for by
number: a path never comes from the browser. The page may load nothing from anywhere else.
"""

import json
import secrets
import socket
from collections.abc import Callable
from contextlib import suppress
from importlib import resources
from pathlib import PurePath
from typing import Any

from anedl.errors import AnedlError, ConfigError, DataError
from anedl.review.session import ChangedError, Choice, Review
from anedl.triage.verdict import STATES

try:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.datastructures import Headers, QueryParams
    from starlette.requests import Request
    from starlette.responses import JSONResponse, PlainTextResponse, Response
    from starlette.routing import Route
    from starlette.types import ASGIApp, Message, Receive, Scope, Send
except ImportError as error:
    raise AnedlError(
        f'the review page needs {error.name}, which is not installed: pip install "anedl[review]"'
    ) from error

LARGEST_BODY = 4 * 2**20  # bytes; a decision about 100,000 images takes 0.7 MB
MOST_ITEMS = 500
LONGEST_KEY = 64
PAGE = "page.html"
MEDIA_TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
HEADERS = {
    "content-security-policy": "default-src 'none'; img-src 'self'; script-src 'self'; "
    "style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}


def create_app(review: Review, token: str, port: int) -> ASGIApp:
    """The page of a run for a server that listens on this port of the loopback."""
    app = Starlette(routes=[*_page_routes(), *_routes(review)])
    return Guard(app, token, {f"127.0.0.1:{port}", f"localhost:{port}"})


class Guard:
    """Lets only those through who know the token and come from this server's own page."""

    def __init__(self, app: ASGIApp, token: str, hosts: set[str]) -> None:
        self._app, self._token, self._hosts = app, token, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, with the headers that keep the page to itself."""
        if scope["type"] != "http":
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = {name for name, _ in message["headers"]}
                extra = {"cache-control": "no-store", **HEADERS}
                message["headers"] = [
                    *message["headers"],
                    *(
                        (name.encode(), value.encode())
                        for name, value in extra.items()
                        if name.encode() not in given
                    ),
                ]
            await send(message)

        headers = Headers(scope=scope)
        token, _, rest = scope["path"].removeprefix("/").partition("/")
        if refused := self._refusal(scope["method"], headers, token):
            await PlainTextResponse(refused, 403)(scope, receive, send_guarded)
            return
        inner = {**scope, "path": f"/{rest}", "raw_path": None, "root_path": ""}
        await self._app(inner, receive, send_guarded)

    def _refusal(self, method: str, headers: Headers, token: str) -> str | None:
        if headers.get("host", "") not in self._hosts:
            return "This server answers to its own address only."
        origin = headers.get("origin")
        own = {f"http://{host}" for host in self._hosts}
        if origin is None and method not in ("GET", "HEAD"):
            return "A request that changes something must say where it comes from."
        if origin is not None and origin not in own:
            return "This request comes from another page."
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return "This request comes from another page."
        if not secrets.compare_digest(token.encode(), self._token.encode()):
            return "The address lacks the right token; take the one that `anedl review` printed."
        return None


def _page_routes() -> list[Route]:
    """The page's own files, each under its name, and the page itself."""

    def route(path: str, name: str) -> Route:
        content = folder.joinpath(name).read_bytes()
        media_type = MEDIA_TYPES[PurePath(name).suffix]

        def answer(_: Request) -> Response:
            return Response(content, media_type=media_type)

        return Route(f"/{path}", answer, methods=["GET"])

    folder = resources.files("anedl.review").joinpath("page")
    names = [file.name for file in folder.iterdir() if PurePath(file.name).suffix in MEDIA_TYPES]
    return [route("", PAGE), *(route(name, name) for name in names)]


def _routes(review: Review) -> list[Route]:
    def state(_: Request) -> Any:
        return review.state()

    def changes(request: Request) -> Any:
        return review.changes(_integer(request.query_params, "seen"))

    def view(request: Request) -> Any:
        order = review.view(read_choice(request.query_params))
        return Response(order.astype("<u4").tobytes(), media_type="application/octet-stream")

    def items(request: Request) -> Any:
        numbers = request.query_params.get("at", "").split(",")
        if len(numbers) > MOST_ITEMS or not all(_is_count(number) for number in numbers):
            raise ConfigError(f"at: up to {MOST_ITEMS} numbers of images, parted by commas")
        return review.items([int(number) for number in numbers])

    def thumbnail(request: Request) -> Any:
        content, media_type = review.thumbnail(request.path_params["number"])
        # The pile is part of the address, so another run on the same port is another picture.
        kept = {"cache-control": "private, max-age=86400, immutable"}
        return Response(content, media_type=media_type, headers=kept)

    def image(request: Request) -> Any:
        content, media_type = review.whole_image(request.path_params["number"])
        return Response(content, media_type=media_type)

    def decide(asked: dict[str, Any]) -> Any:
        numbers, label = asked.get("at"), asked.get("label")
        if not isinstance(numbers, list) or not all(type(number) is int for number in numbers):
            raise ConfigError("at: a list of numbers of images")
        if not (label is None or isinstance(label, str)):
            raise ConfigError("label: a text")
        do, pile = str(asked.get("do")), str(asked.get("pile"))
        return review.decide(pile, numbers, do, label, _key(asked), _seen(asked))

    def undo(asked: dict[str, Any]) -> Any:
        pile, again = str(asked.get("pile")), asked.get("again") is True
        return review.undo(pile, _key(asked), _seen(asked), again)

    return [
        Route("/state", _answering(state)),
        Route("/changes", _answering(changes)),
        Route("/view", _answering(view)),
        Route("/items", _answering(items)),
        Route("/thumb/{pile}/{number:int}", _answering(thumbnail)),
        Route("/image/{number:int}", _answering(image)),
        Route("/decide", _answering(decide, with_body=True), methods=["POST"]),
        Route("/undo", _answering(undo, with_body=True), methods=["POST"]),
    ]


def read_choice(query: QueryParams) -> Choice:
    """Which images an address asks for.

    Raises:
        ConfigError: a part of it makes no sense.
    """
    # What stands in an address is any text: `Choice` checks it.
    states: Any = query["state"].split(",") if query.get("state") else STATES
    show: Any = query.get("show", "open")
    order: Any = query.get("order", "worth")
    return Choice(
        states=tuple(states),
        show=show,
        class_name=query.get("class"),
        cluster=_integer(query, "cluster") if "cluster" in query else None,
        low=_real(query, "low"),
        high=_real(query, "high"),
        order=order,
    )


def _answering(work: Callable[[Any], Any], with_body: bool = False) -> Any:
    """An endpoint that does its work in a thread and tells errors as plain text."""

    async def endpoint(request: Request) -> Response:
        try:
            asked = await _body(request) if with_body else request
            answer = await run_in_threadpool(work, asked)
        except ChangedError as error:
            return PlainTextResponse(str(error), 409)
        except ConfigError as error:
            return PlainTextResponse(str(error), 400)
        except DataError as error:
            return PlainTextResponse(str(error), 404)
        except OSError as error:
            # A full disk, say: the page keeps the decision and asks again.
            return PlainTextResponse(f"not saved: {error}", 503)
        return answer if isinstance(answer, Response) else JSONResponse(answer)

    return endpoint


async def _body(request: Request) -> dict[str, Any]:
    content = bytearray()
    async for chunk in request.stream():
        content += chunk
        if len(content) > LARGEST_BODY:
            raise ConfigError("the request is too large")
    try:
        asked = json.loads(content)
    except ValueError as error:
        raise ConfigError("the request is not JSON") from error
    if not isinstance(asked, dict):
        raise ConfigError("the request is not a JSON object")
    return asked


def _key(asked: dict[str, Any]) -> str:
    key = asked.get("key")
    if not isinstance(key, str) or not 0 < len(key) <= LONGEST_KEY or not key.isprintable():
        raise ConfigError(f"key: a text of up to {LONGEST_KEY} characters")
    return key


def _seen(asked: dict[str, Any]) -> int:
    seen = asked.get("seen")
    if type(seen) is not int:
        raise ConfigError("seen: the id of an entry")
    return seen


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10


def _integer(query: QueryParams, name: str) -> int:
    text = query.get(name, "")
    if not _is_count(text):
        raise ConfigError(f"{name}: a whole number, not {text!r}")
    return int(text)


def _real(query: QueryParams, name: str) -> float | None:
    text = query.get(name)
    if not text:
        return None
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"{name}: a number, not {text!r}") from None


def serve(app: ASGIApp, bound: socket.socket) -> None:
    """Answer on a bound socket until Ctrl-C."""
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,  # it would write the token down
        server_header=False,
        lifespan="off",
        ws="none",
        timeout_graceful_shutdown=2,
    )
    with suppress(KeyboardInterrupt):
        uvicorn.Server(config).run(sockets=[bound])
