"""Where the page of a run is found: a port of the loopback and a random token.

A run keeps its address while its folder stays where it is, so an open page goes on by itself when
the server is started again. It is kept among the user's own cached files, readable by no one else,
and not in the run folder, which may be handed on.
"""

import hashlib
import json
import os
import secrets
import socket
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from anedl.errors import AnedlError
from anedl.files import cache_folder

LOOPBACK = "127.0.0.1"
SHORTEST_TOKEN = 32  # characters of 6 bits each


@dataclass(frozen=True)
class Address:
    """A port and a token."""

    port: int
    token: str

    @property
    def url(self) -> str:
        """What a person opens."""
        return f"http://{LOOPBACK}:{self.port}/{self.token}/"


def listen(run: Path, port: int | None = None) -> tuple[socket.socket, Address]:
    """A socket at the run's address; at another port if its own is taken.

    Raises:
        AnedlError: the port that was asked for is taken.
    """
    known = _read(_file_of(run))
    token = known.token if known else secrets.token_urlsafe(24)
    if port is not None:
        try:
            bound = _bound(port)
        except OSError as error:
            raise AnedlError(
                f"port {port} cannot be used ({error.strerror or error}); name another with --port"
            ) from error
    else:
        try:
            bound = _bound(known.port if known else 0)
        except OSError:
            bound = _bound(0)
    address = Address(bound.getsockname()[1], token)
    _write(_file_of(run), address)
    return bound, address


def _bound(port: int) -> socket.socket:
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        # The port of a server that has just ended may be taken up again at once.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((LOOPBACK, port))
        # From here on a browser waits instead of being refused, however early the page is opened.
        bound.listen()
    except (OSError, OverflowError) as error:
        bound.close()
        raise error if isinstance(error, OSError) else OSError(str(error)) from error
    return bound


def _file_of(run: Path) -> Path:
    name = hashlib.sha256(os.fsencode(run.resolve())).hexdigest()[:32]
    return cache_folder() / "review" / f"{name}.json"


def _read(path: Path) -> Address | None:
    try:
        kept = json.loads(path.read_text(encoding="ascii"))
        address = Address(int(kept["port"]), str(kept["token"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return address if len(address.token) >= SHORTEST_TOKEN else None


def _write(path: Path, address: Address) -> None:
    with suppress(OSError):  # without a place to keep it, the next start has another address
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            json.dump({"port": address.port, "token": address.token}, file)
