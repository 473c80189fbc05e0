"""List the benchmark settings with their counts."""

import argparse
import json


def add_arguments(parser: argparse.ArgumentParser, words: list[str]) -> None:
    """Declare the form of the answer."""
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def run(arguments: argparse.Namespace) -> int:
    """Print one row a setting."""
    from anedl.data.settings import SETTINGS

    rows = [
        {
            "setting": setting.name,
            "known": setting.num_known,
            "classes": setting.num_classes,
            "labelled": setting.num_known * setting.labelled_per_class,
            "validation": setting.num_known * setting.validation_per_class,
            "pool_inliers": setting.pool_inliers,
            "pool_outliers": setting.pool_outliers,
            "M": setting.top_m,
            "O": setting.oracle_share,
            "backbone": setting.backbone,
        }
        for setting in SETTINGS.values()
    ]
    if arguments.json:
        print(json.dumps(rows, indent=2))
        return 0
    widths = {key: max(len(key), *(len(str(row[key])) for row in rows)) for key in rows[0]}
    print("  ".join(f"{key:<{width}}" for key, width in widths.items()).rstrip())
    for row in rows:
        print("  ".join(f"{row[key]!s:<{width}}" for key, width in widths.items()).rstrip())
    return 0
