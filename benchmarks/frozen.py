"""What should learn behind a frozen trunk? Trials on piles of photographs, by their truth.

    python benchmarks/frozen.py --out results/studies/frozen.json
    python benchmarks/frozen.py --training 100 --variants evidence --out FILE

Draws of CIFAR-100: five known classes with 40 labels each, of which 25 train (or as many as
--training says), and a pile of 1,000 images of these classes among 1,000 of others.
EfficientNet-Lite0, trained on ImageNet, looks at them once, at 96 pixels. On these draws the recipe
of `anedl fit --backbone efficientnet-lite0` was chosen, so they are no measure of how well it does
elsewhere. A draw takes five minutes on a core.
"""

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from origin import origin
from PIL import Image
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from anedl.data.dataset import ArrayImages
from anedl.data.protocol import Split
from anedl.data.settings import get_setting
from anedl.data.sources import load_dataset
from anedl.engine.checkpoint import load_module
from anedl.engine.features import with_features
from anedl.engine.in_memory import train_in_memory
from anedl.engine.inference import outputs_of
from anedl.engine.model import build_method
from anedl.engine.own import OWN, make_problem
from anedl.engine.precision import Precision
from anedl.engine.spec import make_spec
from anedl.files import write_json
from anedl.networks import frozen_encoder, trained_on

TRUNK, SIDE, VIEWS = "efficientnet-lite0", 96, 2
KNOWN, TRAINING, VALIDATION, PILE = 5, 25, 15, 2000
LENGTH = {"epochs": 15, "epoch_steps": 40, "batch_size": 64}
CPU = Precision("fp32", torch.device("cpu"))
TEACH, DO_NOT = {"selected_evidence": 1.0}, {"selected_evidence": 0.0}
# Name → method, its options, the share of features that training leaves out, the length.
VARIANTS = {
    "labels alone": ("supervised", {}, 0.8, LENGTH),
    "all features, evidence of labels": ("anedl-plus", DO_NOT, 0.0, LENGTH),
    "a fifth of them": ("anedl-plus", DO_NOT, 0.8, LENGTH),
    "evidence of selected images too": ("anedl-plus", TEACH, 0.0, LENGTH),
    "both": ("anedl-plus", TEACH, 0.8, LENGTH),
    "three times as long": ("anedl-plus", TEACH, 0.8, {**LENGTH, "epochs": 45}),
}
# What evidence of selected images brings, where there are more labels than a few.
EVIDENCE = {
    f"evidence of selected images {weight:g}":
        ("anedl-plus", {"selected_evidence": weight}, 0.8, LENGTH)
    for weight in (0.0, 0.3, 1.0)
}  # fmt: skip
GROUPS = {"all": VARIANTS, "evidence": EVIDENCE}


def drawn(data, seed, training):
    """A problem of own images, and the truth about its pile: classes 0…4, −1 for strangers."""
    labels_each = training + VALIDATION
    dataset = load_dataset("cifar100", data)
    pixels, labels = dataset.train.images.pixels, dataset.train.labels
    rng = np.random.default_rng(seed)
    classes = rng.permutation(len(dataset.class_names))[:KNOWN]
    own = [rng.permutation(np.flatnonzero(labels == label)) for label in classes]
    inliers, strangers = PILE // 2 // KNOWN, PILE // 2
    parts = [of_class[:labels_each] for of_class in own]
    parts += [of_class[labels_each : labels_each + inliers] for of_class in own]
    parts.append(rng.permutation(np.flatnonzero(~np.isin(labels, classes)))[:strangers])
    frame = SIDE * 8 // 7
    frames = np.stack([
        np.asarray(Image.fromarray(pixels[index]).resize((frame, frame), Image.Resampling.BICUBIC))
        for index in np.concatenate(parts)
    ])  # fmt: skip
    truth = np.repeat(np.r_[np.arange(KNOWN), np.arange(KNOWN), -1],
                      [labels_each] * KNOWN + [inliers] * KNOWN + [strangers])  # fmt: skip
    labelled = np.arange(KNOWN * labels_each).reshape(KNOWN, labels_each)
    split = Split(
        setting=OWN, fold=0, development=False, known_classes=tuple(range(KNOWN)),
        known_names=tuple(dataset.class_names[label] for label in classes),
        labelled=labelled[:, :training].ravel(), validation=labelled[:, training:].ravel(),
        pool=np.arange(labelled.size, len(truth)), test=labelled[:, training:].ravel(),
        test_part="train",
    )  # fmt: skip
    trained = trained_on(TRUNK)
    setting = replace(
        get_setting("cifar10-6/50"), name=OWN, dataset=OWN,
        train_counts=(labels_each,) * KNOWN + (PILE,), test_counts=(0,) * (KNOWN + 1),
        known_classes=split.known_classes, top_m=3,
        oracle_share=0.355, image_size=SIDE, mean=trained.mean, std=trained.std,
        augmentation="imagenet", backbone=TRUNK, folds="one", development_unknowns=0,
    )  # fmt: skip
    told = np.where(np.arange(len(truth)) < labelled.size, truth, KNOWN)
    return make_problem(setting, ArrayImages(frames), told, split), truth[labelled.size :]


def spec_of(problem, method, options, length):
    train = {**length, "frozen": True, "feature_views": VIEWS, "execution": "eager"}
    return make_spec(problem.setting, method, 0, train=train, options=options)


def figures(wrong, score, truth):
    known = truth >= 0
    return {"error": float(wrong[known].mean()), "auroc": float(roc_auc_score(known, score))}


def tried(problem, truth, method, options, dropout, length):
    frozen_encoder.DROPOUT = dropout
    spec = spec_of(problem, method, options, length)
    weights = train_in_memory(spec, problem).weights
    model = build_method(spec, problem.setting, problem.task, CPU.device, load_weights=False)
    load_module(model, weights)
    said = outputs_of(model, problem.pool(), CPU)
    return figures(said.logits.argmax(1).numpy() != truth, said.score.numpy(), truth)


def logistic(problem, truth):
    """A linear classifier of the plain features, and its largest probability."""
    labelled, pool = (problem.features.plain_of(i).numpy()
                      for i in (problem.split.labelled, problem.split.pool))  # fmt: skip
    mean, std = pool.mean(0), pool.std(0) + 1e-6
    classes = problem.dataset.train.labels[problem.split.labelled]
    fitted = LogisticRegression(C=0.003, max_iter=1000).fit((labelled - mean) / std, classes)
    said = fitted.predict_proba((pool - mean) / std)
    return figures(said.argmax(1) != truth, said.max(1), truth)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, nargs="+", default=[200, 201, 202, 203])
    parser.add_argument(
        "--training", type=int, default=TRAINING, help="labels of a class that train (most: 285)"
    )
    parser.add_argument("--variants", choices=GROUPS, default="all")
    parser.add_argument("--data", type=Path, help="folder of the data sets")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    draws = {}
    for seed in options.draws:
        problem, truth = drawn(options.data, seed, options.training)
        problem = with_features(problem, spec_of(problem, "supervised", {}, LENGTH), CPU)
        found = {"logistic regression": logistic(problem, truth)}
        for name, variant in GROUPS[options.variants].items():
            found[name] = tried(problem, truth, *variant)
        draws[str(seed)] = {"classes": list(problem.split.known_names), "variants": found}
        write_json(options.out, origin("cpu") | {"training": options.training, "draws": draws})
    for name in found:
        mean = {key: 100 * np.mean([draw["variants"][name][key] for draw in draws.values()])
                for key in ("error", "auroc")}  # fmt: skip
        print(f"{name:34} error {mean['error']:5.1f}   AUROC {mean['auroc']:5.1f}")


if __name__ == "__main__":
    main()
