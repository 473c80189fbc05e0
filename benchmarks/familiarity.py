"""What does judging new images by their familiarity bring, and what does it cost?

    python benchmarks/familiarity.py digits --out results/studies/familiarity-digits.json
    python benchmarks/familiarity.py results/models/cifar100-55-50 --model best --out FILE

`digits`: for every seed the worked example's folders are written, part of the pile is kept back as
new images, and `anedl fit` trains on the rest. A run folder: half of its validation images take the
place of fresh ones, the other half and the test's unknown are new images. Either way new images,
and pictures made up here that are like nothing the model has seen, are judged at 5 % by the score
alone and by score and familiarity together.
"""

import argparse
import json
import string
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from origin import origin
from PIL import Image, ImageDraw
from sklearn.datasets import load_digits

from anedl.calibration import Calibration
from anedl.engine.evaluate import load_run
from anedl.engine.inference import outputs_of
from anedl.evaluation.metrics import OUTLIER
from anedl.export.predictor import load
from anedl.familiarity import Familiarity
from anedl.files import write_json
from anedl.fit.flow import Wishes, fit
from anedl.presets.example import CHOICES
from anedl.presets.folders import KNOWN, digits_folders, read_truth, write_digits_folders

LEVEL = 0.05
COUNT = 500  # pictures of each kind
KEPT_BACK = 400  # of the pile of digits, as new images


def foreign_pictures(side, seed=0):
    """Pictures of kinds that no model here was trained on, (COUNT, side, side, 3) uint8 each."""
    draw = np.random.default_rng(seed)
    shape, grey = (COUNT, side, side, 3), (COUNT, side, side, 1)
    place = np.linspace(0, 1, side)
    angle = draw.uniform(0, 2 * np.pi, (COUNT, 1, 1))
    slope = np.cos(angle) * place[:, None] + np.sin(angle) * place
    slope -= slope.min((1, 2), keepdims=True)
    waves = np.sin(2 * np.pi * draw.integers(1, side // 2, (COUNT, 1, 1)) * place[:, None]) > 0
    letters = list(string.ascii_letters + "    ")
    return {
        "noise": draw.integers(0, 256, shape, dtype=np.uint8),
        "grey noise": coloured(draw.integers(0, 256, grey, dtype=np.uint8)),
        "one colour": np.broadcast_to(draw.integers(0, 256, (COUNT, 1, 1, 3)), shape),
        "one grey": np.broadcast_to(draw.integers(0, 256, (COUNT, 1, 1, 1)), shape),
        "a gradient": coloured(255 * (slope / slope.max((1, 2), keepdims=True))[..., None]),
        "stripes": coloured(255 * np.broadcast_to(waves, (COUNT, side, side))[..., None]),
        "a page of text": np.stack([page(draw.choice(letters, (99, 40)), side) for _ in angle]),
        "digits": np.stack([resized(16 * d, side) for d in load_digits().images[:COUNT]]),
    }


def coloured(grey):
    return np.repeat(grey, 3, -1)


def resized(pixels, side):
    picture = Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).convert("RGB")
    return np.asarray(picture.resize((side, side), Image.Resampling.BILINEAR))


def page(letters, side):
    """Black on white, four times too large, then made small."""
    picture = Image.new("RGB", (4 * side, 4 * side), "white")
    pen = ImageDraw.Draw(picture)
    for number, line in enumerate(letters[: 4 * side // 12 + 1]):
        pen.text((2, 12 * number), "".join(line), fill="black")
    return resized(np.asarray(picture), side)


def rejected(calibration, said):
    """The share of images that is rejected by the score alone, and by both, in this order."""
    alone = replace(calibration, familiar=np.zeros(0))
    score, familiarity = said
    return [
        float((of.p_values(score, "new", familiarity) <= LEVEL).mean())
        for of in (alone, calibration)
    ]


def study_digits(folder, seed):
    """What a fit on digits rejects of new ones and of the foreign."""
    folders = digits_folders(folder)
    kept = folder / "new"
    if not kept.exists():
        write_digits_folders(folder, seed=seed)
        truth = read_truth(folders.truth)
        plain = [name for name in sorted(truth) if name[:4].isdigit() and name.endswith(".png")]
        kept.mkdir()
        for name in np.random.default_rng(seed).choice(plain, KEPT_BACK, replace=False):
            (folders.pile / name).rename(kept / name)
    wishes = Wishes(seed=seed, level=LEVEL, device="cpu", quiet=True, resume=True, **CHOICES)
    run = fit(folders.labelled, folders.pile, folder / "run", wishes, lambda text: None).folder
    truth = read_truth(folders.truth)
    predictor = load(run, device="cpu")
    files = sorted(kept.iterdir())
    is_known = np.array([truth[file.name] in KNOWN for file in files])
    found = predictor.predict(files)
    both = found.inlier_score, found.familiarity
    rows = {
        "known": rejected(predictor.calibration, [of[is_known] for of in both]),
        "strangers": rejected(predictor.calibration, [of[~is_known] for of in both]),
    }
    for name, pictures in foreign_pictures(predictor.framing.side).items():
        if name != "digits":
            found = predictor.judge(pictures.astype(np.uint8))
            rows[name] = rejected(predictor.calibration, (found.inlier_score, found.familiarity))
    return {"seed": seed, "fresh": len(predictor.calibration.fresh), "rejected": rows}


def study_run(folder, model, data):
    """The same of a benchmark's model."""
    _, problem, method, precision = load_run(folder, model, "auto", data)

    def say(images):
        outputs = outputs_of(method, images, precision)
        return outputs.score.double().cpu().numpy(), outputs.features

    familiarity = Familiarity.of(say(problem.images_at(problem.split.labelled))[1])

    def judge(images):
        score, features = say(images)
        return score, familiarity.score(features).double().cpu().numpy()

    score, familiar = judge(problem.validation()[0])
    calibration = Calibration(score[::2], np.zeros(0), LEVEL, familiar[::2])
    rows = {"known": rejected(calibration, (score[1::2], familiar[1::2]))}
    images, targets = problem.test()
    rows["strangers"] = rejected(calibration, judge(images[torch.from_numpy(targets == OUTLIER)]))
    for name, pictures in foreign_pictures(problem.setting.image_size).items():
        pixels = torch.from_numpy(pictures.astype(np.uint8)).permute(0, 3, 1, 2).contiguous()
        rows[name] = rejected(calibration, judge(pixels))
    return {"run": folder.name, "model": model, "fresh": len(score[::2]), "rejected": rows}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", help="digits, or a run folder")
    parser.add_argument("--model", choices=["last", "best"], default="last", help="of the run")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(8)), help="of digits")
    parser.add_argument("--runs", type=Path, default=Path("runs/familiarity"), help="of digits")
    parser.add_argument("--data", type=Path, help="where the data sets are")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    if arguments.what == "digits":
        studies = []
        for seed in arguments.seeds:
            studies.append(study_digits(arguments.runs / f"seed{seed}", seed))
            print(json.dumps(studies[-1]), file=sys.stderr, flush=True)
    else:
        studies = [study_run(Path(arguments.what), arguments.model, arguments.data)]
    print(f"{'rejected at 5 %':18} {'score':>12} {'both':>12}")
    for name in studies[0]["rejected"]:
        shares = 100 * np.array([study["rejected"][name] for study in studies])
        cells = [
            f"{one.mean():5.1f} ± {one.std(ddof=1) if len(one) > 1 else 0:4.1f}" for one in shares.T
        ]
        print(f"{name:18} {cells[0]:>12} {cells[1]:>12}")
    if arguments.out is not None:
        write_json(arguments.out, origin() | {"level": LEVEL, "studies": studies})


if __name__ == "__main__":
    main()
