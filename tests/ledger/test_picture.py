"""The ledger as a picture: what its bars, dots and lines stand at."""

import shutil
from pathlib import Path

import pytest
from PIL import Image

from anedl.cli import main
from anedl.errors import AnedlError
from anedl.files import write_json
from anedl.ledger.picture import MOST_GROUPS, picture_of
from anedl.ledger.table import build_ledger

PUBLISHED = Path(__file__).parents[2] / "results" / "published.json"


def drawn(axes):
    """Label, length of the bar, dots and lines of each row of a panel, from the top down."""
    labels = [label.get_text() for label in axes.get_yticklabels()]
    bars = {round(bar.get_y() + bar.get_height() / 2): bar.get_width() for bar in axes.patches}
    dots = {line.get_ydata()[0]: list(line.get_xdata()) for line in axes.lines}
    lines = {
        round(sum(segment[:, 1]) / 2): segment[0, 0]
        for collection in axes.collections
        for segment in collection.get_segments()
    }
    return [
        (label, bars.get(row), dots.get(row), lines.get(row)) for row, label in enumerate(labels)
    ]


def test_bars_are_means_of_the_last_models_with_a_dot_a_run_and_the_published_line(
    a_run, a_published
):
    runs = [a_run(0, 26.0, 80.0), a_run(1, 28.0, 84.0)]
    runs += [a_run(method="fixmatch", error=35.0, auroc=90.0)]
    area, error = picture_of(build_ledger(runs, [a_published()])).axes
    assert "AUROC" in area.get_title()
    assert "error" in error.get_title()
    assert drawn(area) == [("fixmatch", 90.0, [90.0], None), ("anedl", 82.0, [80.0, 84.0], 90.3)]
    # In the same order, and named once.
    assert drawn(error) == [("", 35.0, [35.0], None), ("", 27.0, [26.0, 28.0], 26.7)]


def test_only_the_paper_s_method_is_stressed(a_run):
    names = ("anedl", "anedl-plus", "fixmatch")
    runs = [a_run(method=name, auroc=90.0 - n) for n, name in enumerate(names)]
    area, _ = picture_of(build_ledger(runs, [])).axes
    first, second, third = (bar.get_facecolor() for bar in area.patches)
    assert first == second != third


def test_a_setting_has_its_own_panels(a_run):
    runs = [a_run(), a_run(setting="cifar10-6/50", auroc=95.0)]
    titles = [axes.get_title() for axes in picture_of(build_ledger(runs, [])).axes]
    assert [title.partition(":")[0] for title in titles] == [
        "cifar10-6/50", "cifar10-6/50", "cifar100-55/50", "cifar100-55/50",
    ]  # fmt: skip


def test_a_published_number_by_another_score_is_not_drawn(a_run, a_published):
    other = a_published(score="self_training")
    area, error = picture_of(build_ledger([a_run()], [other])).axes
    assert not area.collections
    assert not error.collections


def test_a_group_without_the_score_keeps_its_row(a_run):
    without = a_run(method="fixmatch")
    without.last.auroc.clear()
    area, error = picture_of(build_ledger([without, a_run()], [])).axes
    assert drawn(area)[1] == ("fixmatch", None, None, None)
    assert drawn(error)[1] == ("", 30.0, [30.0], None)


def test_what_is_too_much_or_nothing_is_refused(a_run):
    runs = [a_run(options={"kl_weight": float(n)}) for n in range(MOST_GROUPS + 1)]
    picture_of(build_ledger(runs[:-1], []))
    with pytest.raises(AnedlError, match=r"41 rows.*--steps"):
        picture_of(build_ledger(runs, []))
    with pytest.raises(AnedlError, match="no run to draw"):
        picture_of(build_ledger([], []))


@pytest.fixture
def results(tmp_path, a_run):
    for run in (
        a_run(),
        a_run(budget="fast", steps=51_200, method="openmatch", error=33.0),
        a_run(development=True, method="supervised"),
    ):
        write_json(tmp_path / "results" / "runs" / run.file_name, run.to_json())
    return tmp_path / "results"


@pytest.mark.parametrize(
    ("words", "shown", "left_out"),
    [
        (["--steps", "51200"], ["openmatch"], ["anedl", "supervised"]),
        (["--steps", "51200", "204800"], ["openmatch", "anedl"], ["supervised"]),
        (["--budget", "full"], ["anedl"], ["openmatch", "supervised"]),
        (["--budget", "full", "--dev"], ["supervised"], ["openmatch", "anedl"]),
    ],
)
def test_lengths_and_budgets_choose_what_is_shown_and_drawn(
    results, capsys, monkeypatch, words, shown, left_out
):
    seen = []

    def keep(ledger):
        seen.extend(group.key.method for table in ledger.tables for group in table.groups)
        return picture_of(ledger)

    monkeypatch.setattr("anedl.ledger.picture.picture_of", keep)
    picture = results / "figures" / "all.png"
    words = ["ledger", "--results", str(results), *words, "--picture", str(picture)]
    assert main(words) == 0
    said = capsys.readouterr()
    assert str(picture) in said.err
    rows = [line.split()[0] for line in said.out.splitlines() if line.startswith("  ")]
    for name in shown:
        assert name in seen
        assert name in rows
    assert not {*left_out} & {*seen, *rows}
    with Image.open(picture) as image:
        assert image.width > 500


def test_what_is_missing_is_said_of_the_whole_ledger_alone(results, capsys):
    shutil.copy(PUBLISHED, results)
    words = ["ledger", "--results", str(results), "--setting", "cifar10-6/50"]
    assert main(words) == 0
    assert "Published, without a full-length run" in capsys.readouterr().out
    assert main([*words, "--steps", "51200"]) == 0
    assert "Published, without" not in capsys.readouterr().out


def test_a_length_that_no_run_has_is_told_with_those_there_are(results, capsys):
    assert main(["ledger", "--results", str(results), "--steps", "7"]) == 1
    said = capsys.readouterr().err
    assert "fast, 51,200 steps" in said
    assert "full, 204,800 steps" in said


def test_a_picture_is_a_png(results, tmp_path, capsys):
    words = ["ledger", "--results", str(results), "--picture", str(tmp_path / "bars.svg")]
    assert main(words) == 1
    assert "NAME.png" in capsys.readouterr().err
    assert not (tmp_path / "bars.svg").exists()
