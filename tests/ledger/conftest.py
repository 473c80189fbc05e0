"""Made-up entries of the ledger: a run is a few numbers, so hundreds cost nothing."""

import hashlib
from dataclasses import replace

import pytest

from anedl.ledger.entry import Figures, LedgerRun
from anedl.ledger.published import Published


def figures(error=30.0, auroc=80.0, epoch=199):
    return Figures(epoch, error, error + 1, {"score": auroc, "self_training": auroc - 5})


def hashed(*parts):
    return hashlib.sha256(repr(parts).encode()).hexdigest()


@pytest.fixture
def a_run():
    """An entry; `error` and `auroc` are its last model's, the best by validation is 1 better."""

    def make(seed=0, error=30.0, auroc=80.0, best=True, **changes):
        run = LedgerRun(
            setting="cifar100-55/50", split_hash="", method="anedl", config_hash="",
            recipe_hash="", seed=seed, fold=seed, budget="full", development=False,
            pool_limit=None, steps=204_800, wall_s=3600.0 + seed, device="a GPU", torch="2.9",
            version="0.1.0", command=None, options={}, last=figures(error, auroc),
            best_val=figures(error - 1, auroc + 1, 150) if best else None,
        )  # fmt: skip
        run = replace(run, **changes)
        shared = (run.setting, run.method, run.options, run.development, run.pool_limit, run.steps)
        return replace(
            run,
            split_hash=run.split_hash or hashed(run.setting, run.fold, run.development),
            config_hash=run.config_hash or hashed(shared, run.seed, run.fold),
            recipe_hash=run.recipe_hash or hashed(shared),
        )

    return make


@pytest.fixture
def a_published():
    """A published number for the method of `a_run`."""

    def make(**changes):
        item = Published(
            setting="cifar100-55/50", method="anedl", error=26.7, error_std=0.2, auroc=90.3,
            auroc_std=0.1, what="tables-1-2", variant=None, options={}, score="score",
            comparable=("error", "auroc"), unavailable=(), source="the paper", note="three folds",
        )  # fmt: skip
        return replace(item, **changes)

    return make
