"""The package's imports point one way, and importing it costs little."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "anedl"

# Each layer may import itself and anything named before it, never anything after it.
LAYERS = [
    ["errors", "views", "files", "options"],
    ["dirichlet"],
    [
        "losses",
        "contrast",
        "scores",
        "one_vs_all",
        "alignment",
        "cutmix",
        "mixmatch",
        "otsu",
        "outlier_class",
        "turns",
        "familiarity",
    ],
    ["networks"],
    ["methods"],
    ["data"],
    ["intake"],
    ["evaluation", "blocks", "conformal", "calibration", "pollution"],
    ["engine"],
    ["triage"],
    ["export"],
    ["review"],
    ["report"],
    ["ledger"],
    ["presets"],
    ["parameter_kinds"],
    ["estimator"],
    ["fit"],
    ["api"],
    ["cli", "__init__", "__main__"],
]
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
MODULES = sorted(PACKAGE.rglob("*.py"))


def layer_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_layers(path: Path) -> set[str]:
    layers = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        layers |= {name.split(".")[1] for name in names if name.startswith("anedl.")}
    return {layer for layer in layers if (PACKAGE / layer).exists() or layer in RANK}


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_one_way(path):
    own = layer_of(path)
    assert own in RANK, f"{own} has no place in the order of layers"
    for layer in imported_layers(path):
        assert RANK[layer] <= RANK[own], f"{path.name} ({own}) imports the later layer {layer}"


def loaded_by(statement: str) -> set[str]:
    code = f"{statement}; import sys, json; print(json.dumps(sorted(sys.modules)))"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    return set(json.loads(result.stdout))


def test_import_is_cheap_and_loads_nothing_optional():
    loaded = loaded_by("import anedl")
    heavy = {
        "torch",
        "numpy",
        "PIL",
        "sklearn",
        "matplotlib",
        "rich",
        "jinja2",
        "tensorboard",
        "wandb",
    }
    assert not loaded & heavy


def test_what_it_offers_can_be_listed_before_it_is_used():
    import anedl

    assert {"train", "fit", "load", "calibrate", "OpenSetClassifier"} <= {*dir(anedl)}
    assert all(hasattr(anedl, name) for name in dir(anedl))


def test_the_command_line_starts_without_torch():
    """`anedl --help` and `anedl --version` answer at once."""
    assert not loaded_by("import anedl.cli; anedl.cli.build_parser()") & {"torch", "sklearn", "PIL"}
