"""Take a trained run elsewhere: its model as one ONNX file or as a folder, and a model card.

The ONNX file holds normalisation, class names, threshold and, where the run is calibrated, the
p-values; `docs/examples/onnx_inference.py` runs it without torch. The folder holds the weights,
settings, figures and card, without checkpoints and logs: `anedl predict` and `export` take it as
they take a run, and of a benchmark `anedl evaluate`. The card is README.md, with the metadata that
model hubs read.
"""

import argparse
from pathlib import Path

from anedl.cli.options import add_which_model
from anedl.errors import ConfigError


def add_arguments(parser: argparse.ArgumentParser, words: list[str]) -> None:
    """Declare which run, which of its models, and what to write."""
    parser.add_argument("run", type=Path, help="run folder")
    parser.add_argument("--onnx", type=Path, metavar="FILE", help="write the model here")
    add_which_model(parser)
    parser.add_argument(
        "--weights", type=Path, metavar="FOLDER", help="write the model and its card into it"
    )
    parser.add_argument("--card", action="store_true", help="write RUN/README.md")
    parser.add_argument(
        "--licence",
        metavar="ID",
        help="licence of the weights, for the card, as hubs name it: apache-2.0, cc-by-4.0 …",
    )


def run(arguments: argparse.Namespace) -> int:
    """Write what was asked for and say where it is."""
    from anedl.export.predictor import require_run

    if arguments.onnx is None and arguments.weights is None and not arguments.card:
        raise ConfigError("nothing to do: give --onnx FILE, --weights FOLDER or --card")
    require_run(arguments.run)
    if arguments.onnx is not None and arguments.onnx.is_dir():
        raise ConfigError(f"--onnx {arguments.onnx}: a folder; name a file")
    if arguments.onnx is not None and arguments.onnx.suffix != ".onnx":
        raise ConfigError(
            f"--onnx {arguments.onnx}: name it .onnx, by which `anedl predict` knows such a model"
        )
    if arguments.weights is not None:
        from anedl.export.weights import check_vacant

        check_vacant(arguments.weights)  # before anything else is written
    if arguments.onnx is not None:
        from anedl.export.description import model_of
        from anedl.export.onnx_graph import export_run

        model = model_of(arguments.run, arguments.model)
        description = export_run(arguments.run, arguments.onnx, model)
        megabytes = arguments.onnx.stat().st_size / 1e6
        print(
            f"{arguments.onnx}: the {model} model, {len(description.class_names)} classes, "
            f"{megabytes:.1f} MB"
        )
        if description.rejection is None:
            print("it calls nothing unknown: the run has no threshold")
        else:
            print(f"unknown: {description.rejection.promise}")
    if arguments.card:
        from anedl.export.card import write_card

        print(write_card(arguments.run, arguments.licence, arguments.model))
    if arguments.weights is not None:
        from anedl.export.weights import write_weights

        model = write_weights(arguments.run, arguments.weights, arguments.model, arguments.licence)
        print(f"{arguments.weights}: the {model} model, with its card")
    return 0
