"""Several runs side by side: who is averaged, who is paired, what is warned of, what is drawn."""

import csv
import json
from collections import Counter

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score
from tests.report.own_run import make_own_run

from anedl.cli import main
from anedl.errors import AnedlError
from anedl.report.compare import GENERATOR, compare_text, run_rows, write_compare
from anedl.report.comparison import listed, pairs
from anedl.report.fairness import judge_fairness, split_rows
from anedl.report.overlay import PANELS, curve, mean_curve, panels_figure, rejected_shares
from anedl.report.piles import piles_section, pollution_figure
from anedl.report.recipes import differing_entries, read_recipes, short_names


def change(folder, **entries):
    """Rewrite entries of a run's configuration; `options` and `train` are merged."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    for name, value in entries.items():
        config[name] = {**config[name], **value} if name in ("options", "train") else value
    path.write_text(json.dumps(config))
    return folder


def set_result(folder, **entries):
    path = folder / "results.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **entries}))
    return folder


def said(recipes):
    return " ".join(judge_fairness(recipes).warnings)


def labels(recipes):
    return [group.name for group in recipes.groups]


def test_runs_that_differ_by_seed_alone_are_one_recipe(make_run):
    folders = [make_run("two", seed=2), make_run("plain", "supervised"), make_run("zero")]
    other = change(
        make_run("other", seed=1),
        options={"kl_weight": 0.5}, differs={"kl_weight": 0.5}, train={"log_every": 7},
    )  # fmt: skip
    recipes = read_recipes([*folders, other])
    assert labels(recipes) == ["anedl", "supervised", "anedl (kl_weight=0.5)"]
    assert [group.seeds for group in recipes.groups] == [[0, 2], [0], [1]]
    entries = dict(differing_entries(recipes.groups))
    assert entries["method"] == ["anedl", "supervised", "anedl"]
    assert entries["options.kl_weight"][2] == "0.5"
    assert not {"seed", "train.log_every"} & entries.keys()
    assert "options.top_m" not in entries  # only one method has it, always the same


def test_seeds_in_words():
    assert [listed(s) for s in ([4], [0, 1], [3, 1, 2], [0, 2, 5])] == [
        "4",
        "0, 1",
        "1–3",
        "0, 2, 5",
    ]


def test_only_seeds_of_both_are_paired(make_run):
    ours = [make_run(f"a{s}", seed=s, error=e) for s, e in ((0, 0.05), (1, 0.07), (2, 0.09))]
    theirs = [make_run(f"b{s}", "supervised", s, error=e) for s, e in ((1, 0.10), (0, 0.10))]
    recipes = read_recipes([*ours, *theirs])
    lines = compare_text(recipes).splitlines()
    # 5, 7, 9: mean 7, deviation 2; 10, 10. The pairs are −5 and −3: mean −4, deviation √2, and
    # Student's t for one degree of freedom is 12.706, so the interval reaches 12.706 · √2 / √2.
    assert "| anedl | 0–2 | 7.0 ± 2.0 |" in "\n".join(lines)
    assert "| supervised | 0, 1 | 10.0 ± 0.0 |" in "\n".join(lines)
    assert any(
        line.startswith("| anedl − supervised | 0, 1 | -4.0 [-16.7, +8.7] |") for line in lines
    )
    assert "means are over different seeds (0–2: anedl; 0, 1: supervised)" in said(recipes)


def test_the_same_split_is_said_first(make_run):
    recipes = read_recipes([make_run("a"), make_run("b", "supervised")])
    fairness = judge_fairness(recipes)
    assert fairness.warnings == []
    (sentence,) = fairness.agreed
    digest = json.loads((recipes.runs[0].folder / "results.json").read_text())["split_hash"]
    assert sentence.startswith(f"All 2 runs are on the same split ({digest[:12]}")
    assert compare_text(recipes).startswith("All 2 runs are on the same split")
    (row,) = split_rows(recipes)
    assert (row.seed, row.same, row.splits) == ("0", True, [digest[:12]] * 2)


def test_a_run_that_differs_in_nothing_is_not_asked_again_of_a_file_that_changed(
    make_run, tmp_path
):
    """Here of one with other defaults now; another time it might not load at all."""
    source = "from anedl.methods.supervised import Supervised\n\nclass Mine(Supervised):\n    "
    file = tmp_path / "mine.py"
    file.write_text(source + "pass\n")
    name = f"{file}:Mine"
    folders = [change(make_run(number, name, 0), differs={}) for number in ("one", "two")]
    change(folders[1], train={"weight_decay": 0.25}, differs={"weight_decay": 0.25})
    file.write_text(source + 'engine = {"weight_decay": 0.5}\n')
    recipes = read_recipes(folders)
    assert labels(recipes) == ["mine.py:Mine", "mine.py:Mine (weight_decay=0.25)"]
    change(folders[1], method_sha256="another")
    entries = dict(differing_entries(read_recipes(folders).groups))
    assert {"method_sha256", "train.weight_decay"} == entries.keys()


def test_different_splits_are_not_paired_and_said(make_run):
    folders = [make_run("a0"), make_run("a1", seed=1)]
    folders += [make_run("b0", "supervised"), make_run("b1", "supervised", 1)]
    # Seed 1 of the second method was trained on another draw under the same name.
    set_result(folders[3], split_hash="f" * 64)
    recipes = read_recipes(folders)
    assert "Different splits for seed 1: one for anedl, another for supervised." in said(recipes)
    assert "not paired" in said(recipes)
    assert [one.config["seed"] for one, _ in pairs(*recipes.groups)] == [0]
    assert [row.same for row in split_rows(recipes)] == [True, False]
    assert judge_fairness(recipes).agreed == []


def test_a_fold_that_is_not_the_seeds_own_is_no_pair(make_run):
    recipes = read_recipes([make_run("a"), make_run("b", "supervised", fold=3)])
    assert "No two recipes share a seed" in said(recipes)
    assert [row.seed for row in split_rows(recipes)] == ["0 (fold 0)", "0 (fold 3)"]
    assert "95 % interval" not in compare_text(recipes)


@pytest.mark.parametrize(
    ("entries", "results", "sentence"),
    [
        ({"setting": "other"}, {}, "Different settings (digits: anedl (digits); other: "),
        ({"development": True}, {}, "Development runs beside official ones"),
        ({"pool_limit": 1000}, {}, "Pools of different sizes (the whole pool: "),
        ({"train": {"epochs": 8}}, {"steps": 80}, "Different lengths of training (40 steps: "),
        ({"budget": "fast"}, {}, "Different budgets (“"),
    ],
)
def test_what_makes_figures_differ_is_said(make_run, entries, results, sentence):
    other = set_result(change(make_run("b"), **entries), **results)
    recipes = read_recipes([make_run("a"), other])
    assert sentence in said(recipes)
    assert len(recipes.groups) == 2
    assert len(set(labels(recipes))) == 2


def test_a_repeated_run_is_no_replicate(make_run):
    recipes = read_recipes([make_run("first"), make_run("again"), make_run("next", seed=1)])
    assert [group.seeds for group in recipes.groups] == [[0, 1], [0]]
    assert labels(recipes) == ["anedl [first]", "anedl [again]"]
    assert "first and again have the same configuration and seed" in said(recipes)


def test_versions_and_devices_are_noted(make_run):
    other = set_result(make_run("b", seed=1), torch="2.9", device="another")
    notes = judge_fairness(read_recipes([make_run("a"), other])).notes
    assert notes == [
        "Versions of torch: 2.13: anedl; 2.9: anedl.",
        "Devices: a <fast> machine: anedl; another: anedl.",
    ]


def test_curves_are_those_of_the_log_and_their_mean(make_run):
    rows = [
        {"step": 5, "epoch": 0, "stage": 2, "loss": 3.0, "train": {"ce": 1.0},
         "selection": {"count": 9, "purity": 0.5, "recall": 0.1}},
        {"step": 10, "epoch": 0, "stage": 2, "loss": 2.0, "train": {"ce": 0.5}},
        {"step": 10, "epoch": 0, "stage": 2, "validation": {"error": 0.25},
         "test": {"error": 0.3, "auroc": {"score": 0.8}}},
    ]  # fmt: skip
    halved = [{**row, "loss": row["loss"] / 2} if "loss" in row else row for row in rows[1:]]
    recipes = read_recipes([make_run("a", rows=rows), make_run("b", seed=1, rows=halved)])
    (group,) = recipes.groups
    first = {name: curve(group.runs[0], read) for name, read in PANELS.items()}
    assert first == {
        "training loss": {5: 3.0, 10: 2.0},
        "validation error (%)": {10: 25.0},
        "test AUROC (%)": {10: 80.0},
        "purity of selection (%)": {5: 50.0},
    }
    losses = [curve(run, PANELS["training loss"]) for run in group.runs]
    assert mean_curve(losses) == {10: 1.5}  # the second run has no step 5
    figure = panels_figure(recipes.groups, PANELS, columns=1, height=1)
    assert [axes.get_ylabel() for axes in figure.axes] == list(PANELS)
    drawn = [list(line.get_ydata()) for line in figure.axes[0].get_lines()]
    assert drawn == [[3.0, 2.0], [1.0], [1.5]]  # two runs, then their mean


def test_a_long_curve_is_thinned_by_means(make_run):
    losses = np.random.default_rng(0).normal(size=1200)
    rows = [{"step": i, "epoch": 0, "stage": 1, "loss": x} for i, x in enumerate(losses)]
    recipes = read_recipes([make_run("a", rows=rows), make_run("b", "supervised", rows=rows)])
    figure = panels_figure(recipes.groups, {"loss": PANELS["training loss"]}, columns=1, height=1)
    for line in figure.axes[0].get_lines():
        np.testing.assert_allclose(line.get_ydata(), losses.reshape(300, 4).mean(axis=1))
        np.testing.assert_allclose(line.get_xdata(), np.arange(1.5, 1200, 4))


def test_the_roc_curve_rejects_what_the_threshold_rejects(make_run):
    run = read_recipes([make_run("a"), make_run("b", seed=1)]).runs[0]
    x, y = rejected_shares(run)
    score, outlier = run.test["score"].astype(float), run.test_targets < 0
    cuts = np.append(np.unique(score), np.inf)
    by_hand = {
        (100 * np.mean(score[~outlier] < c), 100 * np.mean(score[outlier] < c)) for c in cuts
    }
    hand = np.array(sorted(by_hand))
    for point in zip(x, y, strict=True):
        assert np.abs(hand - point).max(axis=1).min() < 1e-9
    area = np.sum(np.diff(x) * (y[1:] + y[:-1]) / 2) / 1e4
    assert area == pytest.approx(roc_auc_score(~outlier, score), abs=2e-3)


def test_the_same_own_images_are_known_by_their_pixels(tmp_path):
    one, two, three = (make_own_run(tmp_path / name).folder for name in ("one", "two", "three"))
    index = three / "cache" / "index.jsonl"
    index.write_text(index.read_text().replace(f"{7:064x}", "a" * 64))
    same = read_recipes([one, two])
    assert labels(same) == ["one", "two"]
    assert judge_fairness(same).agreed
    other = read_recipes([one, three])
    assert "Different splits for seed 0: one for one, another for three." in said(other)
    (two / "cache" / "index.jsonl").unlink()
    (two / "cache" / "pixels.npy").unlink()
    (two / "cache").rmdir()
    gone = read_recipes([one, two])
    assert "two: its images are gone" in said(gone)
    assert pairs(*gone.groups) == []


def test_piles_stand_side_by_side_with_what_the_runs_found(tmp_path, blank_pictures):
    folders = [make_own_run(tmp_path / f"pile {n}", count=n).folder for n in (90, 120)]
    section = piles_section(read_recipes(folders))
    for folder, pile in zip(folders, section["piles"], strict=True):
        with (folder / "triage.csv").open(newline="") as file:
            counts = Counter(row["state"] for row in csv.DictReader(file))
        assert {share.state: share.count for share in pile.shares if share.count} == counts
        found = json.loads((folder / "fit.json").read_text())["pollution"]
        assert pile.cards["Of no known class"].figure == f"{100 * found['share']:.0f} %"
    assert section["rows"] == [
        "Held-out error", "Of no known class", "Threshold, pile", "Threshold, new images",
        "Did the pile help?",
    ]  # fmt: skip
    page = write_compare(read_recipes(folders), tmp_path / "page.html").read_text()
    assert "pile 90" in page
    assert "There are no ROC curves" in page


def test_a_benchmark_has_no_pile_to_sort(make_run):
    assert piles_section(read_recipes([make_run("a"), make_run("b", seed=1)])) is None


def test_shares_are_drawn_with_their_intervals():
    axes = pollution_figure([("$x$_", 0.5, 0.4, 0.7), ("_b", 0.1, 0.0, 0.2)]).axes[0]
    ends = [bar.get_segments()[0][:, 0].tolist() for bar in axes.collections]
    np.testing.assert_allclose(ends, [[40, 70], [0, 20]])
    np.testing.assert_allclose([line.get_xdata()[0] for line in axes.get_lines()], [50, 10])


def test_names_are_as_short_as_tells_them_apart(tmp_path):
    folders = [tmp_path / "a" / "run", tmp_path / "b" / "run", tmp_path / "b" / "other\n"]
    assert list(short_names(folders).values()) == ["a/run", "b/run", "b/other\\x0a"]
    assert list(short_names(folders[1:]).values()) == ["run", "other\\x0a"]


def test_links_lead_to_reports_that_exist(make_run, tmp_path):
    odd, plain = make_run("javascript:a%2F #?&'\""), make_run("plain", seed=1)
    (odd / "report.html").write_text("a report")
    page_folder = tmp_path / "pages"
    rows = run_rows(read_recipes([odd, plain]), ["test error"], page_folder)
    assert [row.report for row in rows] == [
        "../javascript%3Aa%252F%20%23%3F%26%27%22/report.html",
        None,
    ]
    (row,) = run_rows(read_recipes([odd, plain]), [], tmp_path)[:1]
    assert row.report.startswith("javascript%3A")  # no scheme


def test_runs_that_cannot_be_compared_are_refused(make_run, tmp_path):
    run, unfinished = make_run("run"), make_run("unfinished")
    (unfinished / "results.json").unlink()
    for folders, message in (
        ([run], "at least two runs"),
        ([run, tmp_path / "x" / ".." / "run"], "are one run"),
        ([run, tmp_path], "there is no run here"),
        ([run, unfinished], "has not ended"),
    ):
        with pytest.raises(AnedlError, match=message):
            read_recipes(folders)


def test_only_an_earlier_page_is_written_over(make_run, tmp_path, blank_pictures, capsys):
    runs = [str(make_run("a|b<i>")), str(make_run("b", seed=1))]
    page, letter = tmp_path / "new" / "page.html", tmp_path / "letter.html"
    for _ in range(2):
        assert main(["compare", *runs, "-o", str(page)]) == 0
    assert capsys.readouterr().out.rstrip().endswith(f"page: {page}")
    assert f'content="{GENERATOR}"' in page.read_text()
    letter.write_text("dear reader")
    for place in (letter, tmp_path):
        assert main(["compare", *runs, "-o", str(place)]) == 1
        said = capsys.readouterr()
        assert "left alone" in said.err
        assert said.out == ""
    assert letter.read_text() == "dear reader"


def test_odd_names_break_neither_table_nor_page(tmp_path, blank_pictures):
    names = ["<b>|\\*[x](y)", "plain"]
    recipes = read_recipes([make_own_run(tmp_path / name).folder for name in names])
    table = [line for line in compare_text(recipes).splitlines() if line.startswith("|")]
    assert all(line.replace("\\\\", "").replace("\\|", "").count("|") == 4 for line in table[:4])
    assert "&lt;b>" in table[2]
    page = write_compare(recipes, tmp_path / "page.html").read_text()
    assert "<b>|" not in page
    assert "&lt;b&gt;|" in page
