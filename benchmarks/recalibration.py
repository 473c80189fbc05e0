"""What happens to a threshold where images come from elsewhere, and what calibrating anew brings.

    python benchmarks/recalibration.py results/models/cifar100-55-50 --out FILE

The test images of a benchmark's calibrated model, and the same as another camera might give them.
Of the known ones COUNT calibrate the model anew, the rest and the strangers are judged, by the
calibration that the model comes with and by the new one; this for DRAWS draws of the COUNT.
"""

import argparse
import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from origin import origin
from PIL import Image, ImageEnhance, ImageFilter

from anedl.calibration import Calibration
from anedl.conformal import chance_to_lose, compare
from anedl.engine.evaluate import load_run
from anedl.engine.inference import outputs_of
from anedl.evaluation.metrics import OUTLIER
from anedl.export.calibrating import UNLIKELY
from anedl.export.description import model_of, read_calibration, read_familiarity
from anedl.files import write_json

COUNT, DRAWS = 100, 200
GENERATOR = np.random.default_rng(0)


def as_it_is(picture):
    return picture


def blurred(picture):
    return picture.filter(ImageFilter.GaussianBlur(0.7))


def dark(picture):
    return ImageEnhance.Contrast(ImageEnhance.Brightness(picture).enhance(0.5)).enhance(0.7)


def compressed(picture):
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=20)
    return Image.open(file).convert("RGB")


def noisy(picture):
    pixels = np.asarray(picture) + GENERATOR.normal(0, 12, (*picture.size[::-1], 3))
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


CAMERAS = {
    "as they are": as_it_is,
    "out of focus": blurred,
    "half the light": dark,
    "strongly compressed": compressed,
    "noisy": noisy,
}


def seen_by(camera, images):
    """Images (N, 3, H, W) uint8 as this camera gives them."""
    pictures = [Image.fromarray(frame) for frame in images.permute(0, 2, 3, 1).numpy()]
    frames = np.stack([np.asarray(camera(picture)) for picture in pictures])
    return torch.from_numpy(frames).permute(0, 3, 1, 2).contiguous()


def lost(calibration, score, familiar):
    return float((calibration.p_values(score, "new", familiar) <= calibration.level).mean())


def study(score, familiar, known, former):
    """Shares by the former calibration of all images, and by new ones, mean over the draws."""
    draw = np.random.default_rng(0)
    rows = []
    for _ in range(DRAWS):
        order = draw.permutation(np.flatnonzero(known))
        ours, judged = order[:COUNT], order[COUNT:]
        new = Calibration(score[ours], np.zeros(0), former.level, familiar[ours])
        gone = round(COUNT * lost(former, score[ours], familiar[ours]))
        chance = chance_to_lose(gone, COUNT, len(former.fresh), former.level)
        rows.append(
            [
                lost(new, score[judged], familiar[judged]),
                lost(new, score[~known], familiar[~known]),
                chance < UNLIKELY,
                compare(former.fresh, score[ours], former.level).differ,
            ]
        )
    of_new = np.array(rows)
    return {
        "known lost": lost(former, score[known], familiar[known]),
        "strangers found": lost(former, score[~known], familiar[~known]),
        "known lost, anew": [float(of_new[:, 0].mean()), float(of_new[:, 0].std(ddof=1))],
        "strangers found, anew": [float(of_new[:, 1].mean()), float(of_new[:, 1].std(ddof=1))],
        "said to be more than chance": float(of_new[:, 2].mean()),
        "scores said to differ": float(of_new[:, 3].mean()),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, help="a calibrated model of a benchmark")
    parser.add_argument("--data", type=Path, help="where the data sets are")
    parser.add_argument("--limit", type=int, help="test images to look at (default: all)")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    model = model_of(arguments.run, None)
    former = read_calibration(arguments.run, model)
    familiarity = read_familiarity(arguments.run, former)
    _, problem, method, precision = load_run(arguments.run, model, "auto", arguments.data)
    images, targets = problem.test()
    chosen = np.random.default_rng(1).permutation(len(targets))[: arguments.limit]
    images, known = images[torch.from_numpy(chosen)], targets[chosen] != OUTLIER
    found = {}
    for name, camera in CAMERAS.items():
        outputs = outputs_of(method, seen_by(camera, images), precision)
        score = outputs.score.double().cpu().numpy()
        familiar = familiarity.score(outputs.features).double().cpu().numpy()
        wrong = outputs.logits.argmax(1).cpu().numpy()[known] != targets[chosen][known]
        found[name] = {"error": float(wrong.mean())} | study(score, familiar, known, former)
        alone = replace(former, familiar=np.zeros(0))
        found[name]["known lost, score alone"] = lost(alone, score[known], None)
        print(name, found[name], flush=True)
    if arguments.out is not None:
        about = origin() | {"run": arguments.run.name, "model": model, "level": former.level}
        about |= {"images": len(chosen), "known": int(known.sum()), "count": COUNT, "draws": DRAWS}
        write_json(arguments.out, about | {"found": found})


if __name__ == "__main__":
    main()
