"""List the benchmark settings with their counts.

    anedl settings
    anedl settings cifar100-20/4 cifar10-4/25     # any K known classes with n labels each

The settings of the paper have a name in the list. Any other counts of the same data sets make a
setting too, by the same rules: DATASET-K/n, of cifar10, cifar100, imagenet30, miniimagenet, digits.
Known classes of your choice are written by their numbers: cifar10-0+1+8+9/25.
"""

import argparse
import json


def add_arguments(parser: argparse.ArgumentParser, words: list[str]) -> None:
    """Declare which settings, and the form of the answer."""
    parser.add_argument(
        "settings", nargs="*", metavar="SETTING", help="these alone, also of counts of your own"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def run(arguments: argparse.Namespace) -> int:
    """Print one row a setting."""
    from anedl.data.settings import SETTINGS, get_setting

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
        for setting in map(get_setting, arguments.settings or SETTINGS)
    ]
    if arguments.json:
        print(json.dumps(rows, indent=2))
        return 0
    widths = {key: max(len(key), *(len(str(row[key])) for row in rows)) for key in rows[0]}
    print("  ".join(f"{key:<{width}}" for key, width in widths.items()).rstrip())
    for row in rows:
        print("  ".join(f"{row[key]!s:<{width}}" for key, width in widths.items()).rstrip())
    return 0
