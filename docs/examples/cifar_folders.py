"""CIFAR images as folders of PNG files for `anedl fit`: a few known classes and a polluted pile.

anedl data fetch cifar100
python docs/examples/cifar_folders.py cifar-folders --known 5 --labels 40 --pile 2000
anedl fit cifar-folders/labelled cifar-folders/pile -o runs/cifar-folders --minutes 10
python docs/examples/cifar_folders.py cifar-folders --judge runs/cifar-folders
"""

import argparse
from pathlib import Path

import numpy as np
from PIL import Image

from anedl.data.sources import load_dataset
from anedl.presets.example import compare_with_truth, describe
from anedl.presets.folders import digits_folders, write_truth


def write_folders(out, dataset, known, labels, pile, strangers, seed):
    """The first `known` classes after a shuffle, and a pile with this share of strangers."""
    images, targets, names = dataset.train.images, dataset.train.labels, dataset.class_names
    rng = np.random.default_rng(seed)
    classes = rng.permutation(len(names))[:known]
    folders, truth = digits_folders(out), {}
    inliers = []
    for label in classes:
        own = rng.permutation(np.flatnonzero(targets == label))
        for position in own[:labels]:
            save(folders.labelled / names[label] / f"{position}.png", images[position])
        inliers.append(own[labels:])
    inliers = rng.permutation(np.concatenate(inliers))[: round(pile * (1 - strangers))]
    foreign = rng.permutation(np.flatnonzero(~np.isin(targets, classes)))[: pile - len(inliers)]
    for position in [*inliers, *foreign]:
        name = f"{position:05}.png"
        save(folders.pile / name, images[position])
        truth[name] = names[targets[position]]
    write_truth(folders.truth, truth)
    print(f"{known} known classes: {', '.join(names[label] for label in classes)}")
    print(f"{folders.labelled}: {labels} each; {folders.pile}: {len(inliers):,} of these classes, "
          f"{len(foreign):,} of others")  # fmt: skip


def save(path, pixels):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--dataset", choices=["cifar10", "cifar100"], default="cifar100")
    parser.add_argument("--known", type=int, default=5, help="known classes")
    parser.add_argument("--labels", type=int, default=40, help="labelled images a class")
    parser.add_argument("--pile", type=int, default=2000, help="images in the pile")
    parser.add_argument("--strangers", type=float, default=0.5, help="their share of the pile")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data", type=Path, help="folder of the data sets")
    parser.add_argument("--judge", type=Path, metavar="RUN", help="compare a finished run instead")
    options = parser.parse_args()
    folders = digits_folders(options.out)
    if options.judge:
        known = sorted(path.name for path in folders.labelled.iterdir())
        verdicts = compare_with_truth(options.judge, folders.truth, known)
        print(describe(verdicts, options.judge))
        return
    dataset = load_dataset(options.dataset, options.data)
    write_folders(options.out, dataset, options.known, options.labels, options.pile,
                  options.strangers, options.seed)  # fmt: skip


if __name__ == "__main__":
    main()
