"""Unpacking an archive without trusting it: plain files and folders, inside one folder, bounded."""

import gzip
import shutil
import tarfile
import tempfile
import zlib
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from anedl.errors import DataError

DEFAULT_MAX_BYTES = 1 << 30


def unpack(archive: Path, folder: str, root: Path, max_bytes: int = DEFAULT_MAX_BYTES) -> Path:
    """Unpack a .tar.gz whose content lies in `folder` to `root/folder`; return that path.

    Links, devices, absolute paths, `..`, anything outside `folder` and more than `max_bytes` in all
    are refused. Everything is written to a temporary folder first and renamed at the end, so
    `root/folder` is either what it was before or complete.
    """
    root.mkdir(parents=True, exist_ok=True)
    target = root / folder
    with tempfile.TemporaryDirectory(prefix=".unpack-", dir=root) as temporary:
        _unpack_members(archive, folder, Path(temporary, "new"), max_bytes)
        fresh = Path(temporary, "new", folder)
        if not fresh.is_dir():
            raise DataError(f"{archive}: holds no folder {folder!r}; delete it and fetch it again")
        _replace(fresh, target, Path(temporary, "old"))
    return target


def _replace(fresh: Path, target: Path, aside: Path) -> None:
    """Put `fresh` where `target` is; what was there goes `aside`, and back if that fails."""
    existed = target.exists()
    if existed:
        target.rename(aside)
    try:
        fresh.rename(target)
    except OSError:
        if existed:
            aside.rename(target)
        raise


def _unpack_members(archive: Path, folder: str, into: Path, max_bytes: int) -> None:
    remedy = "nothing was unpacked; delete the archive and fetch it again"
    try:
        with gzip.open(archive) as plain:
            # The bound covers all that comes out of the compression, headers included.
            bounded = _BoundedReader(plain, max_bytes, archive)
            with tarfile.open(fileobj=bounded, mode="r|") as members:  # type: ignore[call-overload]
                for member in members:
                    path = into / _checked_path(member, folder, archive)
                    if member.isdir():
                        path.mkdir(parents=True, exist_ok=True)
                        continue
                    path.parent.mkdir(parents=True, exist_ok=True)
                    content = members.extractfile(member)
                    with path.open("xb") as file:
                        shutil.copyfileobj(content, file, 1 << 20)
            while bounded.read(1 << 16):
                pass  # gzip compares its own checksum at the very end
    except FileExistsError as error:
        raise DataError(
            f"{archive}: refused: it holds {error.filename!r} twice; {remedy}"
        ) from error
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{archive}: damaged or no .tar.gz ({error}); {remedy}") from error
    except OSError as error:
        raise DataError(f"{archive}: cannot be unpacked into {into} ({error})") from error


def _checked_path(member: tarfile.TarInfo, folder: str, archive: Path) -> PurePosixPath:
    """Where a member may be written, relative to the temporary folder."""
    name = member.name
    path = PurePosixPath(name)
    if member.issym() or member.islnk():
        problem = f"is a link to {member.linkname!r}"
    elif not (member.isdir() or member.type in (tarfile.REGTYPE, tarfile.AREGTYPE)):
        problem = "is neither a file nor a folder"
    elif member.issparse():
        problem = "is a sparse file"
    elif path.is_absolute() or "\\" in name or ":" in name or "\0" in name:
        problem = "has no plain relative path"
    elif ".." in path.parts:
        problem = "leads out of its folder"
    elif not path.parts or path.parts[0] != folder:
        problem = f"lies outside {folder!r}"
    else:
        return path
    raise DataError(
        f"{archive}: refused: its member {name!r} {problem}; nothing was unpacked; the archive is "
        "not the official one: delete it and fetch it again"
    )


class _BoundedReader:
    """Reads from `source` and stops with an error after `max_bytes`."""

    def __init__(self, source: BinaryIO | gzip.GzipFile, max_bytes: int, archive: Path) -> None:
        self._source = source
        self._left = max_bytes
        self._max_bytes = max_bytes
        self._archive = archive

    def read(self, size: int) -> bytes:
        """Return at most `size` bytes."""
        chunk = self._source.read(size)
        self._left -= len(chunk)
        if self._left < 0:
            raise DataError(
                f"{self._archive}: refused: it unpacks to more than {self._max_bytes:,} bytes; "
                "nothing was unpacked; the archive is not the official one: delete it"
            )
        return chunk
