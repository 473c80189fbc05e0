"""What networks say alone and together, measured without test data.

    python benchmarks/networks.py results/models/cifar100-55-50 runs/four --model best last

The runs are of ANEDL on one split; one with `--networks` counts as several. Of every network, of
the first few of each run together, and of each two from different runs: the error on validation
images, and the AUROC by the M largest concentrations between these and images drawn from the pool.
Half of the pool may be outliers, so that AUROC is far below one between known and unknown; it
serves to compare, and uses neither test data nor the pool's labels.
"""

import argparse
from itertools import combinations
from pathlib import Path

import numpy as np
import torch
from sklearn.metrics import roc_auc_score

from anedl.engine.evaluate import load_run
from anedl.engine.inference import outputs_of
from anedl.methods.base import Outputs
from anedl.scores import top_m_evidence


def networks_of(method):
    """Every network of a method, the first first: backbone, classifier and detector by name."""
    own = {name: getattr(method, name) for name in ("backbone", "classifier", "detector")}
    if not hasattr(method, "elders"):
        return [own]
    return [*list(method.elders.networks)[: int(method.elders.count)], own]


def opinion(method, network, images, precision):
    """Logits and concentrations (N, K) that one network gives images, as pair of tensors."""

    def ask(pixels):
        features = network["backbone"](pixels)
        logits = network["classifier"](features)
        return Outputs(features, logits, logits[:, 0], network["detector"](features))

    said = outputs_of(method, images, precision, ask=ask)
    return torch.stack([said.logits, said.alpha]).cpu()


def figures(of_validation, of_pool, targets, m):
    """Error and AUROC to the pool, in per cent, of what several networks say: the mean of it."""
    (logits, known), (_, pool) = (sum(said) / len(said) for said in (of_validation, of_pool))
    error = (logits.argmax(1).numpy() != targets).mean()
    scores = torch.cat([top_m_evidence(known, m), top_m_evidence(pool, m)])
    area = roc_auc_score([1] * len(known) + [0] * len(pool), scores.numpy())
    return 100 * error, 100 * area


def groups(runs):
    """Which networks to ask together: names of them, from the names of each run's networks."""
    yield from ((name,) for names in runs for name in names)
    yield from (tuple(names[:count]) for names in runs for count in range(2, len(names) + 1))
    for one, other in combinations(runs, 2):
        yield from ((a, b) for a in one for b in other)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument(
        "--model", nargs="+", choices=["last", "best"], default=["last"],
        help="the model of each run, or one for all (default: last)",
    )  # fmt: skip
    parser.add_argument("--pool", type=int, default=6000, help="pool images to draw")
    parser.add_argument("--top-m", type=int, default=25)
    parser.add_argument("--data", type=Path, help="where the data sets are")
    arguments = parser.parse_args()
    models = arguments.model * (len(arguments.runs) if len(arguments.model) == 1 else 1)
    names, said, split = [], {}, None
    for run, model in zip(arguments.runs, models, strict=True):
        _, problem, method, precision = load_run(run, model, "auto", arguments.data)
        if split not in (None, problem.split.digest):
            parser.error(f"{run} has another split than {arguments.runs[0]}")
        split = problem.split.digest
        validation, targets = problem.validation()
        pool = problem.pool()
        drawn = np.random.default_rng(0).permutation(len(pool))[: arguments.pool]
        some = pool[torch.from_numpy(np.sort(drawn))]
        networks = networks_of(method)
        several = len(networks) > 1
        names.append(
            [f"{run.name} {n}" if several else run.name for n, _ in enumerate(networks, 1)]
        )
        for name, network in zip(names[-1], networks, strict=True):
            said[name] = [opinion(method, network, part, precision) for part in (validation, some)]
    print(f"{'error':>6} {'AUROC':>6}  of what they say together")
    for group in groups(names):
        known, unlabelled = zip(*(said[name] for name in group), strict=True)
        error, area = figures(known, unlabelled, targets, arguments.top_m)
        print(f"{error:6.2f} {area:6.2f}  {', '.join(group)}", flush=True)


if __name__ == "__main__":
    main()
