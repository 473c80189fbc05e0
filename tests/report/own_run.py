"""A fabricated run of `anedl fit`: everything it leaves that a report looks at, in a moment."""

import csv
import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import save_file

from anedl import dirichlet, scores
from anedl.calibration import Calibration
from anedl.data.protocol import Split
from anedl.data.settings import get_setting
from anedl.data.split_file import write_split
from anedl.engine.spec import make_spec
from anedl.evaluation.metrics import acceptance_threshold, evaluate
from anedl.files import write_json
from anedl.intake.decided import Decided, write_decided
from anedl.intake.index import Entry, header_line
from anedl.intake.listing import Item
from anedl.pollution import estimate_outlier_share
from anedl.triage.table import write_table
from anedl.triage.verdict import Rules, gather, judge

EPOCH_STEPS = 10


@dataclass
class OwnRun:
    """The folder, and the scores that its figures must follow from."""

    folder: Path
    classes: tuple[str, ...]
    names: list[str]
    pile_scores: np.ndarray
    stranger: np.ndarray
    hidden: np.ndarray  # scores of known inliers hidden in the pile
    fresh: np.ndarray


def judged(targets, rng, classes):
    """Logits and alpha that know most inliers and doubt most strangers (target −1)."""
    logits = rng.normal(size=(len(targets), classes)).astype(np.float32)
    known = targets >= 0
    logits[known, targets[known]] += rng.normal(4, 1.2, known.sum()).astype(np.float32)
    alpha = (1 + np.exp(logits)).astype(np.float32)
    score = scores.top_m_evidence(torch.from_numpy(alpha), 2).numpy()
    targets = targets.astype(np.int64)
    return {"logits": logits, "alpha": alpha, "features": logits, "score": score,
            "targets": targets}  # fmt: skip


def write_cache(folder, names, labels, side, rng):
    """An image cache of noise, without a single file behind it."""
    folder.mkdir(parents=True)
    np.save(folder / "pixels.npy", rng.integers(0, 256, (len(names), side, side, 3), np.uint8))
    lines = [
        Entry(Item(Path(f"/nowhere/{i}"), name, label), (1, 1, 1), side, side, f"{i:064x}", i)
        for i, (name, label) in enumerate(zip(names, labels, strict=True))
    ]
    text = header_line(side, len(names)) + "".join(line.to_json() + "\n" for line in lines)
    (folder / "index.jsonl").write_text(text, encoding="ascii")


def make_own_run(
    folder, count=120, classes=("cat", "dog", "fox"), names=None, side=8, held=39, rules=None
):
    """A run with `count` images in the pile, a third of them strangers."""
    rng = np.random.default_rng(5)
    k = len(classes)
    names = list(names or []) + [f"pile/{i:05}.png" for i in range(len(names or []), count)]
    roles = {"labelled": 4 * k, "validation": 3 * k, "fresh": held, "hidden": held, "pile": count}
    starts = dict(zip(roles, np.cumsum([0, *list(roles.values())[:-1]]), strict=True))
    place = {name: starts[name] + np.arange(size) for name, size in roles.items()}
    target = {name: np.arange(size) % k for name, size in roles.items()}
    target["pile"] = np.where(np.arange(count) % 3 == 0, -1, target["pile"])
    outputs = {name: judged(target[name], rng, k) for name in roles}

    (folder / "outputs").mkdir(parents=True)
    known = [f"known {i}" for i in range(starts["pile"])]
    labels = [classes[t] for name in roles if name != "pile" for t in target[name]]
    write_cache(folder / "cache", known + names, labels + [None] * count, side, rng)
    setting = replace(
        get_setting("digits"), name="own", dataset="own", known_classes=tuple(range(k)),
        image_size=side, top_m=2, oracle_share=0.4,
    )  # fmt: skip
    train = {"epochs": 2, "epoch_steps": EPOCH_STEPS, "pretrain_epochs": 1}
    spec = make_spec(setting, "anedl", 0, train=train)
    write_json(folder / "config.json", spec.to_json())
    split = Split(
        "own", 0, False, tuple(range(k)), tuple(classes), place["labelled"], place["validation"],
        np.concatenate([place["hidden"], place["pile"]]), place["fresh"], "train",
    )  # fmt: skip
    write_split(split, folder / "split.json")
    write_rows(folder / "metrics.jsonl")

    named = {"score": outputs["validation"]["score"]}
    thresholds = {"max_softmax": 0.5} | {n: acceptance_threshold(v) for n, v in named.items()}
    fresh = outputs["fresh"]
    probabilities = torch.from_numpy(fresh["logits"]).double().softmax(-1).numpy()
    metrics = evaluate(probabilities, fresh["targets"], {"score": fresh["score"]}).to_json()
    results = {
        "anedl": "0.1.0", "setting": "own", "method": "anedl", "seed": 0, "fold": 0,
        "development": False, "split_hash": split.digest, "config_hash": spec.digest,
        "steps": 20, "seconds": 61.0, "device": "a machine", "torch": "2.13",
        "last": {"epoch": 1, "validation_error": 0.1, "test": metrics, "thresholds": thresholds},
    }  # fmt: skip
    write_json(folder / "results.json", results)
    save_file(fresh, folder / "outputs" / "test-last.safetensors")
    save_file(outputs["validation"], folder / "outputs" / "validation-last.safetensors")
    pool = {
        key: np.concatenate([outputs["hidden"][key], outputs["pile"][key]])
        for key in ("logits", "alpha", "score")
    }
    probability = torch.from_numpy(pool["logits"]).softmax(-1).max(-1)
    alpha = torch.from_numpy(pool["alpha"])
    seen = {
        "score": pool["score"], "predicted": probability.indices.numpy(),
        "probability": probability.values.numpy(), "evidence_predicted": pool["alpha"].max(axis=1),
        "epistemic": dirichlet.mutual_information(alpha).numpy(),
        "aleatoric": dirichlet.expected_entropy(alpha).numpy(),
    }  # fmt: skip
    save_file(seen, folder / "outputs" / "pool-last.safetensors")
    sort_pile(folder, outputs, names, classes, rules or Rules(level=0.05, confidence=0.9))
    return OwnRun(
        folder, tuple(classes), names, outputs["pile"]["score"].astype(float),
        target["pile"] < 0, np.sort(outputs["hidden"]["score"].astype(float)),
        np.sort(fresh["score"].astype(float)),
    )  # fmt: skip


def sort_pile(folder, outputs, names, classes, rules):
    """`triage.csv`, `calibration.json` and `fit.json`."""
    pile = outputs["pile"]
    calibration = Calibration(outputs["fresh"]["score"], outputs["hidden"]["score"], rules.level)
    write_json(folder / "calibration.json", calibration.to_json())
    score = pile["score"].astype(float)
    alpha = torch.from_numpy(pile["alpha"])
    evidence = gather(
        names,
        torch.from_numpy(pile["logits"]).double().softmax(-1).numpy(),
        score=score,
        p_value=calibration.p_values(score, "pile"),
        epistemic=dirichlet.mutual_information(alpha).numpy(),
        aleatoric=dirichlet.expected_entropy(alpha).numpy(),
        duplicate_group=np.full(len(names), -1),
        class_names=classes,
    )
    triage = judge(evidence, rules)
    unknown = triage.where("unknown")
    cluster = np.full(len(names), -1)
    cluster[unknown[: len(unknown) // 2]], cluster[unknown[len(unknown) // 2 :]] = 1, 2
    write_table(folder, triage.with_clusters(cluster))
    pollution = estimate_outlier_share(calibration.scores("pile"), score)
    write_json(
        folder / "fit.json",
        {
            "images": {"decoys": len(calibration.seen)},
            "pollution": pollution.to_json(),
            "helped": {
                "images": 48, "error_without": 0.25, "error_with": 0.125, "difference": -0.125,
                "low": -0.2, "high": -0.05, "hurt": False, "note": "yes",
            },
            "confidence": {"certified": False, "sentence": "a choice, no promise"},
            "summary": ["caution: training took only 20 steps", "the pile: sorted"],
            "sources": {"labelled": "my labelled", "pile": "a <pile>"},
        },
    )  # fmt: skip


def decide(own, labelled, unknown):
    """Have people settle images of the pile, by position, before the run began."""
    names = own.names
    decided = Decided(
        {names[i]: own.classes[0] for i in labelled},
        tuple(names[i] for i in unknown),
        files=("one/decisions.jsonl",),
    )
    write_decided(own.folder, decided)
    states = dict.fromkeys(labelled, "accept") | dict.fromkeys(unknown, "unknown")
    for row, state in states.items():
        edit_triage(own.folder, row, state=state)


def edit_triage(folder, row, **cells):
    """Write into a row of `triage.csv`, as a person would with a spreadsheet."""
    path = folder / "triage.csv"
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    rows[row] |= cells
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


def write_rows(path):
    """Two epochs, one a stage; of a selection only the count is known."""
    rows = [
        {"step": 10, "epoch": 0, "stage": 1, "loss": 2.0, "train": {"ce": 1.0}},
        {"step": 10, "epoch": 0, "stage": 1, "validation": {"error": 0.2}},
        {"step": 20, "epoch": 1, "stage": 2, "selection": {"count": 40.0}, "loss": 1.0,
         "train": {"ce": 0.5, "fixmatch": 0.2}},
        {"step": 20, "epoch": 1, "stage": 2, "validation": {"error": 0.1}},
    ]  # fmt: skip
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
