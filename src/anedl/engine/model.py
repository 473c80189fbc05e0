"""A run's method: built afresh from its spec, or with the weights that it was trained to."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from anedl.data.augment.host import HostAugment
from anedl.data.protocol import Split
from anedl.data.settings import Setting
from anedl.data.split_file import read_split
from anedl.engine.checkpoint import load_module
from anedl.engine.kept_memory import freed_memory_kept
from anedl.engine.precision import Precision, precision_of
from anedl.engine.run_files import MODEL_FILES
from anedl.engine.spec import RunSpec, read_spec
from anedl.engine.task import task_of_split
from anedl.errors import ConfigError, DataError
from anedl.methods.base import Method, Task
from anedl.networks import brings_weights, trained_on
from anedl.networks.encoder import ImageEncoder
from anedl.networks.frozen_encoder import FrozenEncoder


@dataclass(frozen=True)
class TrainedModel:
    """A method with its trained weights, ready to judge images; its data need not be here."""

    spec: RunSpec
    split: Split
    method: Method
    precision: Precision

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the known classes, in the order of the model's outputs."""
        return self.split.known_names

    @property
    def augment(self) -> HostAugment:
        """Whose plain view turns an image of any size into what the model takes."""
        return HostAugment(self.spec.terms.augmentation, self.spec.terms.image_size)


def build_method(
    spec: RunSpec,
    setting: Setting,
    task: Task,
    device: torch.device,
    load_weights: bool = True,
) -> Method:
    """A fresh method whose initial weights depend on the seed and on pretrained weights alone.

    `load_weights` False leaves the latter out, for a method whose weights are then replaced.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(spec.seed)
        encoder = build_encoder(spec, setting, load_weights)
        method = spec.entry.method(spec.options, encoder, task)
    if spec.train.frozen and method.needs_pixels:
        raise ConfigError(
            f"option frozen: {spec.method} {method.needs_pixels}, and of a frozen trunk there are "
            f"only features"
        )
    return method.to(device)


def build_encoder(spec: RunSpec, setting: Setting, load_weights: bool = True) -> ImageEncoder:
    """A run's trunk with what stands before it, and behind it where it is frozen.

    Raises:
        ConfigError: the trunk is to be frozen and has not been trained.
    """
    config = spec.train
    assert config.backbone is not None
    assert config.bn_momentum is not None
    if config.frozen and not brings_weights(config.backbone):
        raise ConfigError(
            f"option frozen: backbone {config.backbone!r} begins with random weights, which are "
            f"not worth keeping; name one that was trained, such as efficientnet-lite0 or "
            f"timm:MODEL:pretrained"
        )
    mean, std = scale_of(config.backbone, setting)
    terms = (config.backbone, mean, std, config.bn_momentum, setting.image_size, load_weights)
    return FrozenEncoder(*terms, config.frozen_side) if config.frozen else ImageEncoder(*terms)


def scale_of(backbone: str, setting: Setting) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and deviation of pixels (0…1) as the trunk knows them, or of the setting's images."""
    trained = trained_on(backbone)
    # A trunk that knows colours says of grey images that it cannot take them.
    if trained is None or len(trained.mean) != len(setting.mean):
        return setting.mean, setting.std
    return trained.mean, trained.std


def load_model(folder: Path, model: str = "last", device: str = "auto") -> TrainedModel:
    """The model of the run in `folder`: "last", or the "best" by validation.

    Raises:
        DataError: the model is missing or damaged.
    """
    spec = read_spec(folder / "config.json")
    path = folder / MODEL_FILES[model]
    if not path.exists():
        raise DataError(f"{path}: there is no such model; {how_to_get(folder, model)}")
    split = read_split(folder / "split.json")
    chosen = choose_device(device)
    task = task_of_split(spec.terms, split)
    method = build_method(spec, spec.terms, task, chosen, load_weights=False)
    try:
        load_module(method, load_file(path))
    except SafetensorError as error:
        raise DataError(
            f"{path}: the model cannot be read ({error}); train the run again"
        ) from error
    precision = precision_of(spec, chosen)
    return TrainedModel(spec, split, method.eval(), precision)


def how_to_get(folder: Path, model: str) -> str:
    """What to do where a model is not in a run folder."""
    other = next(name for name in MODEL_FILES if name != model)
    if (folder / "results.json").exists() and (folder / MODEL_FILES[other]).exists():
        return f"this folder holds the {other} one alone: leave the model out, or name that"
    return "finish the run with `--resume`"


def choose_device(name: str) -> torch.device:
    """The device of that name, which is there; it is not touched. "auto": the GPU if there is one.

    Raises:
        ConfigError: torch does not know it, or does not find it on this machine.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError(
            f"device {name!r} is not one that torch knows: take cpu or cuda"
        ) from error
    if device.type not in ("cpu", "cuda"):
        raise ConfigError(f"device {name!r}: anedl trains on cpu or cuda")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"device {name} was asked for, but torch finds no GPU: take --device cpu")
    if device.type == "cuda" and (device.index or 0) >= (there := torch.cuda.device_count()):
        raise ConfigError(
            f"device {name} was asked for, but the last one that torch finds is cuda:{there - 1}"
        )
    return device


@contextmanager
def working_on(device: torch.device) -> Iterator[None]:
    """Make a GPU with a number the one that this process works on meanwhile.

    Captured graphs and the trunk's own kernels go there and nowhere else, wherever their tensors
    are. What the caller does afterwards goes to the GPU that it went to before. On a CPU memory
    that is freed meanwhile is kept.
    """
    if device.type == "cuda" and device.index is not None:
        with torch.cuda.device(device):
            yield
    else:
        with freed_memory_kept(device):
            yield


def wake(device: torch.device) -> None:
    """Let a GPU's context and libraries come up beside what the caller does next.

    They take seconds to load, most of it outside Python. Whoever uses the device first waits for
    what is left of it.
    """
    if device.type == "cuda":
        threading.Thread(target=_touch, args=(device,)).start()


def _touch(device: torch.device) -> None:
    with suppress(Exception):  # the caller meets the same error, where it can be told
        image = torch.zeros(1, 8, 8, 8, device=device)
        torch.nn.functional.conv2d(image, image)
        torch.mm(image[0, 0], image[0, 0])
