"""Learn from a few labelled images and a pile, and sort the pile.

    anedl fit labelled/ pile/ -o runs/mine
    anedl fit labelled.csv pile.txt -o runs/mine --minutes 30 --target-inlier-loss 0.02
    anedl fit labelled/ pile/ -o runs/mine --dry-run
    anedl review runs/mine
    anedl fit labelled/ pile/ -o runs/next --decisions runs/mine/decisions.jsonl

LABELLED: a folder with one folder a class, or a CSV or Parquet manifest with the columns `path` and
`label`. PILE: a folder of images, at any depth, a text file with a path a line, or a manifest.
Relative paths in a list or a manifest are taken from the folder it lies in, not from the working
folder. A CSV file has a header line; commas, semicolons or tabs separate its columns.

Before training it says what it found: counts, sizes, files that cannot be read, duplicates. Then it
trains a model of the labels alone and the whole method, calibrates a threshold on images that
neither saw, and writes `triage.csv`, contact sheets of what looks new, and a report.
"""

import argparse
import json
import shlex
from pathlib import Path
from typing import Any

from anedl.errors import ConfigError
from anedl.methods.default import DEFAULT_METHOD

AFTER_A_DRY_RUN = (
    "nothing was trained: run the same command without --dry-run; choices that depend on a trial "
    "or on this machine's speed may change"
)


def add_arguments(parser: argparse.ArgumentParser, words: list[str]) -> None:
    """Declare the two places, the run folder and what can be overridden."""
    parser.add_argument("labelled", type=Path, help="class folders or a manifest")
    parser.add_argument("pile", type=Path, help="folder, list of paths or manifest")
    parser.add_argument("-o", "--out", type=Path, required=True, metavar="RUN", help="run folder")
    parser.add_argument(
        "--minutes", type=float, default=10.0, help="time to train for (default: 10)"
    )
    parser.add_argument(
        "--target-inlier-loss", type=float, default=0.05, metavar="SHARE",
        help="share of known images that may be called unknown (default: 0.05)",
    )  # fmt: skip
    parser.add_argument(
        "--target-precision", type=float, default=0.95, metavar="SHARE",
        help="share of accepted images that must be of their class (default: 0.95)",
    )  # fmt: skip
    parser.add_argument(
        "--false-alarms", action="store_true",
        help="let --target-inlier-loss bound the share of false `unknown` flags instead "
        "(Benjamini–Hochberg)",
    )  # fmt: skip
    parser.add_argument(
        "--decisions", type=Path, action="append", default=[], metavar="FILE",
        help="what people decided in `anedl review`: images given a class train with it, images "
        "called unknown stay so; may be given several times, the later file wins",
    )  # fmt: skip
    parser.add_argument("--dry-run", action="store_true", help="say what is there and stop")
    parser.add_argument("--resume", action="store_true", help="go on where a call was cut off")
    parser.add_argument("--seed", type=int, default=0, help="seed of roles and run (default: 0)")
    chosen = parser.add_argument_group("choices made for you unless given")
    chosen.add_argument("--image-size", type=int, metavar="PIXELS", help="side of the images")
    chosen.add_argument(
        "--augmentation", choices=["small", "imagenet", "digits"],
        help="kind of random views; digits never mirrors",
    )  # fmt: skip
    chosen.add_argument(
        "--backbone",
        help="network trunk: wrn-28-2, resnet18; or one that was trained on photographs: "
        "efficientnet-lite0, timm:MODEL:pretrained (default: by the size of the images; without a "
        "GPU wrn-10-1 or efficientnet-lite0, whichever labelled images speak for)",
    )
    chosen.add_argument(
        "--frozen", action=argparse.BooleanOptionalAction, default=None,
        help="keep a trained trunk as it is and learn from its features: minutes without a GPU",
    )  # fmt: skip
    chosen.add_argument(
        "--feature-views",
        type=int,
        metavar="N",
        help="weak views, and as many strong ones, that a frozen trunk sees of each image",
    )
    chosen.add_argument("--batch-size", type=int, metavar="N", help="labelled images a step")
    chosen.add_argument("--top-m", type=int, metavar="M", help="M of the inlier score")
    chosen.add_argument(
        "--selection-share", type=float, metavar="O", help="share of the pile for self-training"
    )
    chosen.add_argument(
        "--folds", type=int, metavar="K",
        help="judge the pile by K models, each by labelled images it has not seen, where too few "
        "can be held out; 0: never",
    )  # fmt: skip
    chosen.add_argument(
        "--near-distance", type=int, metavar="N",
        help="images whose perceptual hashes differ by at most N of 64 bits count as copies of one "
        "another: they count once, and none judges what another has taught (default: 4, or what "
        "the run began with); 0: equal pixels only, for a camera that never moves",
    )  # fmt: skip
    chosen.add_argument(
        "--method", default=DEFAULT_METHOD,
        help=f"see `anedl methods`, or path/to/file.py:ClassName (default: {DEFAULT_METHOD})",
    )  # fmt: skip
    chosen.add_argument(
        "--option", dest="options", action="append", default=[], metavar="NAME=VALUE",
        help="any option of the engine or the method, see `anedl methods NAME`; lists as JSON; the "
        "model of the labels alone, to compare with, keeps its own",
    )  # fmt: skip
    chosen.add_argument("--epochs", type=int, metavar="N", help="instead of --minutes")
    chosen.add_argument("--epoch-steps", type=int, metavar="N", help="instead of --minutes")
    parser.add_argument("--device", default="auto", help="cpu, cuda, cuda:1 … (default: auto)")
    parser.add_argument(
        "--workers", type=int, metavar="N", help="processes that read files (default: one a core)"
    )
    parser.add_argument("--quiet", action="store_true", help="no progress display")


def _option(text: str) -> tuple[str, Any]:
    """A name and its value: a number, true, false, null or a list as JSON, anything else a text."""
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise ConfigError(f"--option {text}: give NAME=VALUE, such as learning_rate=0.01")
    try:
        return name.replace("-", "_"), json.loads(value)
    except ValueError:
        return name.replace("-", "_"), value


def run(arguments: argparse.Namespace) -> int:
    """Fit, and say where everything is."""
    from anedl.fit.flow import Wishes, fit, look

    wishes = Wishes(
        minutes=arguments.minutes, level=arguments.target_inlier_loss, seed=arguments.seed,
        image_size=arguments.image_size, augmentation=arguments.augmentation,
        backbone=arguments.backbone, frozen=arguments.frozen,
        feature_views=arguments.feature_views, batch_size=arguments.batch_size,
        top_m=arguments.top_m,
        selection_share=arguments.selection_share, epochs=arguments.epochs,
        epoch_steps=arguments.epoch_steps, target_precision=arguments.target_precision,
        benjamini_hochberg=arguments.false_alarms, device=arguments.device,
        decisions=tuple(arguments.decisions), folds=arguments.folds,
        near_distance=arguments.near_distance, method=arguments.method,
        options=dict(map(_option, arguments.options)), workers=arguments.workers,
        resume=arguments.resume, quiet=arguments.quiet,
    )  # fmt: skip
    if arguments.dry_run:
        look(arguments.labelled, arguments.pile, arguments.out, wishes, print)
        if not arguments.resume:  # which makes what was deleted again
            print(AFTER_A_DRY_RUN)
        return 0
    fitted = fit(arguments.labelled, arguments.pile, arguments.out, wishes, print)
    print(f"run folder: {fitted.folder}")
    print(f"the sorted pile: {fitted.folder / 'triage.csv'}")
    if doubtful := fitted.summary["triage"]["review"]:
        images = "image" if doubtful == 1 else "images"
        print(f"settle the {doubtful:,} doubtful {images}: "
              f"anedl review {shlex.quote(str(fitted.folder))}")  # fmt: skip
    return 0
