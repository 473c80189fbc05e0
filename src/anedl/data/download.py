"""Bringing one file over HTTP: goes on where a broken transfer stopped, trusts its checksum."""

import http.client
import re
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path

from anedl.data.progress import Progress
from anedl.data.verify import file_digest
from anedl.errors import DataError

_CHUNK = 1 << 16
_TIMEOUT_SECONDS = 30.0
_ATTEMPTS = 4
_WORTH_ANOTHER_TRY = frozenset({408, 425, 429, 500, 502, 503, 504})


class _BrokenError(Exception):
    """The transfer failed in a way that another attempt may mend."""


class _HopelessError(Exception):
    """This address will not give the file, however often it is asked."""


def download(
    urls: Sequence[str],
    md5: str,
    part: Path,
    progress: Progress,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Bring the file with this MD5 to `part` from the first of `urls` that gives it.

    Bytes already in `part` are kept and the rest asked for. An address is given up after four
    attempts in a row that brought nothing new; the wait doubles from one second.
    """
    failures = []
    for url in urls:
        try:
            _from_address(url, md5, part, progress, sleep)
        except _HopelessError as error:
            failures.append(f"  {url}: {error}")
        else:
            return
    name = urls[0].rpartition("/")[2]
    raise DataError(
        f"{name} could not be fetched:\n" + "\n".join(failures) + "\n"
        "Check the network (https_proxy names a proxy) and run the command again, which goes on "
        f"where it stopped; or download the file elsewhere and put it at {part.with_suffix('')}"
    )


def _from_address(
    url: str, md5: str, part: Path, progress: Progress, sleep: Callable[[float], None]
) -> None:
    barren = 0  # attempts in a row without a new byte
    furthest = _size(part)
    while True:
        start = _size(part)
        if start and file_digest(part, "md5") == md5:
            return
        try:
            resumed = _transfer(url, part, start, progress)
            found = file_digest(part, "md5")
            if found == md5:
                return
            part.unlink()
            if not resumed:
                raise _HopelessError(f"wrong file: expected MD5 {md5}, got {found}")
            problem = "the file there is not the one that was begun"
        except _BrokenError as error:
            problem = str(error)
        barren = 0 if _size(part) > furthest else barren + 1
        furthest = max(furthest, _size(part))
        if barren == _ATTEMPTS:
            raise _HopelessError(problem)
        sleep(2.0 ** max(barren - 1, 0))


def _transfer(url: str, part: Path, start: int, progress: Progress) -> bool:
    """Write the body to `part` from byte `start`; return whether the server took up from there."""
    with _open(url, part, start) as response:
        resumed = response.status == http.HTTPStatus.PARTIAL_CONTENT
        total = _length(response, part, start) if resumed else _content_length(response)
        done = start if resumed else 0
        progress(done, total)
        with part.open("ab" if resumed else "wb") as file:
            while chunk := _read(response):
                file.write(chunk)
                done += len(chunk)
                progress(done, total)
    if total is not None and done < total:
        raise _BrokenError(f"broke off after {done:,} of {total:,} bytes")
    return resumed


def _open(url: str, part: Path, start: int) -> http.client.HTTPResponse:
    request = urllib.request.Request(url, headers={"Accept-Encoding": "identity"})
    if start:
        request.add_header("Range", f"bytes={start}-")
    try:
        # A new opener each time reads the proxy settings as they are now.
        response = urllib.request.build_opener().open(request, timeout=_TIMEOUT_SECONDS)
    except urllib.error.HTTPError as error:
        with error:
            problem = f"the server answers {error.code} {error.reason}"
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            # What we have is no beginning of what is there.
            part.unlink(missing_ok=True)
            raise _BrokenError(problem) from error
        kind = _BrokenError if error.code in _WORTH_ANOTHER_TRY else _HopelessError
        raise kind(problem) from error
    except urllib.error.URLError as error:
        if isinstance(error.reason, socket.gaierror):
            raise _HopelessError("its name is not known here; is there a network?") from error
        if isinstance(error.reason, ssl.SSLCertVerificationError):
            raise _HopelessError(f"its certificate is not trusted ({error.reason})") from error
        raise _BrokenError(f"no connection ({error.reason})") from error
    except (OSError, http.client.HTTPException) as error:
        raise _BrokenError(f"no answer ({error or type(error).__name__})") from error
    assert isinstance(response, http.client.HTTPResponse)
    return response


def _read(response: http.client.HTTPResponse) -> bytes:
    try:
        return response.read(_CHUNK)
    except (OSError, http.client.HTTPException) as error:
        raise _BrokenError(f"broke off ({error or type(error).__name__})") from error


def _length(response: http.client.HTTPResponse, part: Path, start: int) -> int | None:
    """The whole file's length from a partial answer, which must take up at `start`."""
    given = response.headers.get("Content-Range", "")
    match = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", given.strip())
    if match is None or int(match[1]) != start:
        part.unlink(missing_ok=True)
        raise _BrokenError(f"asked for bytes from {start}, the server sent {given!r}")
    return None if match[2] == "*" else int(match[2])


def _content_length(response: http.client.HTTPResponse) -> int | None:
    given = response.headers.get("Content-Length", "")
    return int(given) if given.isdecimal() else None


def _size(part: Path) -> int:
    return part.stat().st_size if part.is_file() else 0
