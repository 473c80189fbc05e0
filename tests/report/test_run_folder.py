import json

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from anedl.errors import AnedlError, DataError
from anedl.report.run_folder import read_run


def test_the_saved_scores_give_the_auroc_of_the_results(make_run):
    run = read_run(make_run())
    own, softmax = run.test_scores().items()
    assert own[0] == "top-3 evidence (Eq.\N{NO-BREAK SPACE}9)"
    assert softmax[0] == "max softmax"
    by_score = run.results["last"]["test"]["by_score"]
    for (_, values), key in ((own, "score"), (softmax, "max_softmax")):
        assert roc_auc_score(run.test_targets == -1, -values) == pytest.approx(
            by_score[key]["auroc"], abs=1e-12
        )


def test_a_method_scored_by_softmax_has_one_score(make_run):
    run = read_run(make_run(method="supervised"))
    assert run.softmax_is_own_score
    assert list(run.test_scores()) == ["max softmax"] == list(run.thresholds())
    assert run.top_m is None


def test_m_is_the_one_whose_sums_were_saved(make_run):
    run = read_run(make_run())
    assert run.top_m == 3
    largest_two = np.sort(run.test["alpha"], axis=1)[:, -2:].sum(axis=1)
    run.test["score"] = largest_two.astype(np.float32)
    del run.__dict__["top_m"]
    assert run.top_m == 2
    run.test["score"] = run.test["logits"][:, 0]
    del run.__dict__["top_m"]
    assert run.top_m is None


def test_self_training_starts_only_where_something_changes(make_run):
    assert read_run(make_run("two-stages")).self_training_from == 2
    assert read_run(make_run("alike", method="supervised")).self_training_from is None


def test_folders_that_are_no_finished_run_are_told_apart(make_run, tmp_path):
    with pytest.raises(AnedlError, match=r"no run here.*name a run's folder"):
        read_run(tmp_path / "nowhere")
    folder = make_run()
    (folder / "outputs" / "test-last.safetensors").write_bytes(b"short")
    with pytest.raises(AnedlError, match=r"test-last.*damaged"):
        read_run(folder).test  # noqa: B018
    (folder / "outputs" / "test-last.safetensors").unlink()
    with pytest.raises(AnedlError, match=r"test-last.*missing"):
        read_run(folder).test  # noqa: B018
    (folder / "results.json").unlink()
    with pytest.raises(AnedlError, match=r"has not ended.*--resume"):
        read_run(folder)


def test_an_altered_split_is_refused(make_run):
    folder = make_run()
    record = json.loads((folder / "split.json").read_text())
    record["pool"][0] += 1
    (folder / "split.json").write_text(json.dumps(record))
    with pytest.raises(DataError):
        read_run(folder)
