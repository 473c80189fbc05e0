"""What common practice makes of a frozen trunk's features: logistic regression and simple scores.

    python benchmarks/linear_probe.py cifar100-55/50 --seeds 1 2 3 --data ROOT --out FILE

Nothing of the pool is used. The strength of regularisation is the best of a few on validation
images; the scores are those one finds first: the largest probability, the energy, and the distance
to the nearest labelled image. Features are those that `anedl train --frozen` keeps.
"""

import argparse
import warnings
from pathlib import Path

import torch
from origin import origin
from scipy.special import logsumexp
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import normalize

from anedl.engine.features import features_of_setting
from anedl.engine.precision import Precision
from anedl.engine.problem import load_problem
from anedl.engine.spec import make_spec
from anedl.files import write_json

CPU = Precision("fp32", torch.device("cpu"))
STRENGTHS = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2)  # on features of deviation one


def probed(setting, seed, development, trunk, views, root):
    """Error and AUROCs in per cent of one split."""
    train = {"frozen": True, "backbone": trunk, "feature_views": views}
    spec = make_spec(setting, "supervised", seed, development=development, train=train)
    problem = load_problem(spec.terms, spec.fold, development, root=root)
    problem = features_of_setting(problem, spec, CPU, root, quiet=False)
    x = problem.images_at(problem.split.labelled).numpy()
    y = problem.split.labelled_targets(problem.dataset.train.labels)
    x_valid, y_valid = problem.validation()
    x_test, y_test = problem.test()
    x_valid, x_test = x_valid.numpy(), x_test.numpy()
    scale = x.std()
    models = [LogisticRegression(C=c, max_iter=300).fit(x / scale, y) for c in STRENGTHS]
    model = max(models, key=lambda one: one.score(x_valid / scale, y_valid))
    known = y_test >= 0
    logits = model.decision_function(x_test / scale)
    nearest = NearestNeighbors(n_neighbors=1).fit(normalize(x))
    scores = {
        "max_probability": model.predict_proba(x_test / scale).max(1),
        "energy": logsumexp(logits, axis=1),
        "nearest_labelled": -nearest.kneighbors(normalize(x_test))[0][:, 0],
    }
    wrong = model.classes_[logits.argmax(1)][known] != y_test[known]
    return {
        "error": 100 * wrong.mean(),
        "strength": model.C,
        "auroc": {name: 100 * roc_auc_score(known, score) for name, score in scores.items()},
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("setting")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--dev", action="store_true", help="the development split")
    parser.add_argument("--backbone", default="efficientnet-lite0")
    parser.add_argument(
        "--feature-views", type=int, default=2, help="of the features that are kept"
    )
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path)
    wishes = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    found = {}
    for seed in wishes.seeds:
        found[seed] = probed(wishes.setting, seed, wishes.dev, wishes.backbone,
                             wishes.feature_views, wishes.data)  # fmt: skip
        print(seed, found[seed])
    if wishes.out:
        terms = {"setting": wishes.setting, "development": wishes.dev, "backbone": wishes.backbone}
        write_json(wishes.out, origin("cpu") | terms | {"seeds": found})


if __name__ == "__main__":
    main()
