"""Learn from a few labelled images and a pile, and sort the pile.

    anedl fit labelled/ pile/ -o runs/mine
    anedl fit labelled.csv pile.txt -o runs/mine --minutes 30 --target-inlier-loss 0.02
    anedl fit labelled/ pile/ -o runs/mine --dry-run

LABELLED: a folder with one folder a class, or a CSV or Parquet manifest with the columns `path` and
`label`. PILE: a folder of images, at any depth, a text file with a path a line, or a manifest.

Before training it says what it found: counts, sizes, files that cannot be read, duplicates. Then it
trains a model of the labels alone and the whole method, calibrates a threshold on images that
neither saw, and writes `triage.csv`, contact sheets of what looks new, and a report.
"""

import argparse
from pathlib import Path


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
    parser.add_argument("--dry-run", action="store_true", help="say what is there and stop")
    parser.add_argument("--resume", action="store_true", help="go on where a call was cut off")
    parser.add_argument("--seed", type=int, default=0, help="seed of roles and run (default: 0)")
    chosen = parser.add_argument_group("choices made for you unless given")
    chosen.add_argument("--image-size", type=int, metavar="PIXELS", help="side of the images")
    chosen.add_argument(
        "--augmentation", choices=["small", "imagenet", "digits"],
        help="kind of random views; digits never mirrors",
    )  # fmt: skip
    chosen.add_argument("--backbone", help="network trunk: wrn-28-2, resnet18, timm:MODEL …")
    chosen.add_argument("--batch-size", type=int, metavar="N", help="labelled images a step")
    chosen.add_argument("--top-m", type=int, metavar="M", help="M of the inlier score")
    chosen.add_argument(
        "--selection-share", type=float, metavar="O", help="share of the pile for self-training"
    )
    chosen.add_argument("--epochs", type=int, metavar="N", help="instead of --minutes")
    chosen.add_argument("--epoch-steps", type=int, metavar="N", help="instead of --minutes")
    parser.add_argument("--device", default="auto", help="cpu, cuda, cuda:1 … (default: auto)")
    parser.add_argument(
        "--workers", type=int, metavar="N", help="processes that read files (default: one a core)"
    )
    parser.add_argument("--quiet", action="store_true", help="no progress display")


def run(arguments: argparse.Namespace) -> int:
    """Fit, and say where everything is."""
    from anedl.fit.flow import Wishes, fit, look

    wishes = Wishes(
        minutes=arguments.minutes, level=arguments.target_inlier_loss, seed=arguments.seed,
        image_size=arguments.image_size, augmentation=arguments.augmentation,
        backbone=arguments.backbone, batch_size=arguments.batch_size, top_m=arguments.top_m,
        selection_share=arguments.selection_share, epochs=arguments.epochs,
        epoch_steps=arguments.epoch_steps, target_precision=arguments.target_precision,
        benjamini_hochberg=arguments.false_alarms, device=arguments.device,
        workers=arguments.workers, resume=arguments.resume, quiet=arguments.quiet,
    )  # fmt: skip
    if arguments.dry_run:
        look(arguments.labelled, arguments.pile, arguments.out, wishes, print)
        return 0
    fitted = fit(arguments.labelled, arguments.pile, arguments.out, wishes, print)
    print(f"run folder: {fitted.folder}")
    print(f"the sorted pile: {fitted.folder / 'triage.csv'}")
    return 0
