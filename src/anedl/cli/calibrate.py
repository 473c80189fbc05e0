"""Set the threshold of a finished model for new images anew, by known images it has not seen.

A model's promise ("at most 5 % of the images of known classes are called unknown") is for images
from where its calibration images came. For another camera, place or season name some dozen images
of known classes from there, 19 at least for 5 %; labels are not needed. The model is written with
its new threshold and its card into a folder that `anedl predict` and `anedl export` take as they
take a run; the run itself stays as it is.

Without images a benchmark's model (of `anedl train`) is calibrated by its validation images.

    anedl calibrate runs/mine known-from-the-new-camera/ -o models/new-camera
    anedl predict models/new-camera photos/ > predictions.csv
"""

import argparse
import sys
from pathlib import Path

from anedl.cli.options import add_which_model


def add_arguments(parser: argparse.ArgumentParser, words: list[str]) -> None:
    """Declare which model, by which images, for which level, and where it goes."""
    parser.add_argument("run", type=Path, help="run folder, or one of `anedl export --weights`")
    parser.add_argument(
        "images",
        nargs="*",
        type=Path,
        metavar="PATH",
        help="image files and folders (with all below them): of known classes, all of them, and "
        "not seen in training (default: the validation images of a benchmark's run)",
    )
    parser.add_argument(
        "-o", "--out", type=Path, required=True, metavar="FOLDER", help="a new folder for the model"
    )
    parser.add_argument(
        "--level",
        type=float,
        metavar="SHARE",
        help="share of images of known classes that may be called unknown (default: the run's own, "
        "else 0.05)",
    )
    add_which_model(parser)
    parser.add_argument(
        "--licence", metavar="ID", help="licence of the weights, for the card, as hubs name it"
    )
    parser.add_argument("--data", type=Path, metavar="DIR", help="where the data sets are")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda (default: auto)")
    parser.add_argument(
        "--workers",
        type=int,
        metavar="N",
        help="processes that decode images; 0: none beside the main one (default: one a core, at "
        "most 8)",
    )
    parser.add_argument(
        "--near-distance",
        type=int,
        metavar="BITS",
        help="images whose 64-bit hashes differ in so many bits or fewer are copies, of which one "
        "counts; 0: equal pixels only (default: what the fit had, else 4)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Calibrate, and say what is promised from now on."""
    from anedl.export.calibrating import calibrate

    made = calibrate(
        arguments.run,
        arguments.images or None,
        out=arguments.out,
        level=arguments.level,
        model=arguments.model,
        licence=arguments.licence,
        device=arguments.device,
        data=arguments.data,
        workers=arguments.workers,
        near_distance=arguments.near_distance,
        say=say_aside,
    )
    print(made.calibration.describe())
    print(f"{made.folder}: the {made.model} model with this threshold, and its card")
    return 0


def say_aside(text: str) -> None:
    """Say what was noticed where it does not mix with the promise."""
    print(f"anedl: {text}", file=sys.stderr)
