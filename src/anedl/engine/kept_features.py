"""Where the features of a frozen trunk lie from one call to the next, and when they may be used."""

import hashlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, uint8

from anedl.data.dataset import ArrayImages, FileImages, Images
from anedl.engine.lock import one_after_another
from anedl.engine.precision import Precision
from anedl.engine.problem import Problem
from anedl.engine.spec import RunSpec
from anedl.files import replacing, sweep
from anedl.networks import package_of
from anedl.networks.frozen_encoder import FrozenEncoder

# Of the files and of all that is ours in making features, views and enlargement included: to be
# raised where either changes, for kept features outlive versions.
FORMAT = 1


@dataclass(frozen=True)
class Kept:
    """A folder that keeps features from one call to the next, and of which images they are.

    The features of a data set are `shared` by all runs on it, whatever their seed, method and
    split; those of a user's images belong to one fit, which may change its mind about their number.
    """

    folder: Path
    images_digest: str = ""
    shared: bool = False


def key_of(
    problem: Problem, spec: RunSpec, encoder: FrozenEncoder, precision: Precision, images: str
) -> str:
    """A digest of all that features depend on but the number of views; `images` says of what."""
    terms = problem.setting
    weights = hashlib.sha256()
    for name, value in sorted(encoder.trunk.state_dict().items()):
        weights.update(name.encode())
        weights.update(value.detach().cpu().reshape(-1).view(uint8).numpy().tobytes())
    backbone = spec.train.backbone
    assert backbone is not None
    mean, std = encoder.normalise.mean.tolist(), encoder.normalise.std.tolist()
    facts = {
        "format": FORMAT, "backbone": backbone, "package": package_of(backbone),
        "weights": weights.hexdigest(), "mean": mean, "std": std, "image_size": terms.image_size,
        "side": encoder.side, "augmentation": terms.augmentation, "seed": view_seed(spec),
        "precision": [str(precision.dtype), str(precision.judging_dtype)],
        "device": precision.device.type, "images": images,
    }  # fmt: skip
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def view_seed(spec: RunSpec) -> int:
    """What the kept views are drawn by: one number for all runs on a data set, which share them."""
    return spec.seed if spec.own is not None else 0


def digest_of_images(parts: Sequence[Images]) -> str | None:
    """What tells these images from others, by their pixels or their files; None: nothing known."""
    digest = hashlib.sha256()
    for images in parts:
        # Else the same bytes, cut otherwise into images or into parts, would be the same images.
        shape = images.pixels.shape if isinstance(images, ArrayImages) else (len(images),)
        digest.update(f"{shape}\n".encode())
        if isinstance(images, ArrayImages):
            digest.update(np.ascontiguousarray(images.pixels).data)
        elif isinstance(images, FileImages):
            try:
                stats = [path.stat() for path in images.paths]
            except OSError:
                return None  # whoever decodes the file says so
            for path, stat in zip(images.paths, stats, strict=True):
                digest.update(f"{path} {stat.st_size} {stat.st_mtime_ns}\n".encode())
        elif len(images):
            return None
    return digest.hexdigest()


class Shelf:
    """The files of features under one key; without a folder it holds nothing.

    Where a shared folder turns out to be full or not to be ours, the run goes on without it.
    """

    def __init__(self, kept: Kept | None, key: str, quiet: bool) -> None:
        self._shared = kept is not None and kept.shared
        self._folder = None if kept is None else kept.folder
        if kept is not None and kept.shared:
            self._folder = kept.folder / key[:16]
        self._key = key
        self._say: Callable[[str], None] = (lambda text: None) if quiet else _to_stderr

    @property
    def keeps(self) -> bool:
        """Whether what is written will be there, as far as is known yet."""
        return self._folder is not None

    def read(self, name: str) -> Tensor | None:
        """Features that were kept under this name; None where there are none that can be used."""
        if self._folder is None:
            return None
        path = self._folder / name
        try:
            with safe_open(path, "pt") as file:
                if (file.metadata() or {}).get("key") != self._key:
                    return None
            return load_file(path)["features"]
        except (OSError, SafetensorError, KeyError):
            return None  # not there, not for us to read or damaged: they are made again

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other processes from making the same features meanwhile; wait for those that do."""
        if self._folder is None or not self._shared:
            yield
            return
        waiting = f"waiting for another process, which is making these features in {self._folder}"
        with ExitStack() as lock:
            try:
                say = partial(self._say, waiting)
                if lock.enter_context(one_after_another(self._folder, say)):
                    sweep(self._folder)  # else somebody may be writing there
            except OSError as error:
                self._do_without(error)
            yield

    def write(self, name: str, features: Tensor) -> None:
        """Keep features under this name.

        Raises:
            OSError, SafetensorError: they cannot be, and are one fit's own: it would lose what it
                has done.
        """
        if self._folder is None:
            return
        try:
            with replacing(self._folder / name) as temporary:
                save_file({"features": features}, temporary, {"key": self._key})
        except (OSError, SafetensorError) as error:  # the latter: what the writer makes of faults
            if not self._shared:
                raise
            self._do_without(error)

    def keep_only(self, names: Sequence[str]) -> None:
        """Remove what a try of the same fit left that would have had more views."""
        if self._folder is None or self._shared:
            return
        for path in self._folder.glob("*.safetensors"):
            if path.name not in names:
                path.unlink()

    def _do_without(self, error: Exception) -> None:
        reason = getattr(error, "strerror", None) or error
        self._say(f"{self._folder}: {reason}, so features are not kept and each run makes its own")
        self._folder = None


def _to_stderr(text: str) -> None:
    with suppress(OSError):  # nobody listens: no reason to end a run, or not to wait for another
        print(text, file=sys.stderr, flush=True)
