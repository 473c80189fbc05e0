"""The published numbers: the file holds them all, and its reader tells what is wrong with one."""

import json
from pathlib import Path

import pytest

from anedl.data.settings import SETTINGS
from anedl.engine.differences import differing_options
from anedl.engine.spec import make_spec
from anedl.errors import AnedlError
from anedl.ledger.published import matching, published_file, read_published
from anedl.methods.catalogue import METHODS

FILE = Path(__file__).parents[2] / "results" / "published.json"

SETTING_NAMES = (
    "cifar10-6/50", "cifar10-6/100", "cifar10-6/400", "cifar100-55/50", "cifar100-55/100",
    "cifar100-80/50", "cifar100-80/100", "imagenet30-20/130",
)  # fmt: skip

# Typed from the paper's two main tables: value and deviation, column by column.
AUROC = """
fixmatch  56.1 0.6  60.4 0.4  71.8 0.4  72.0 1.3  79.9 0.9  64.3 1.0  66.1 0.5   88.6 0.5
mtc       96.6 0.6  98.2 0.9  98.9 0.1  81.2 3.4  80.7 4.6  79.4 1.0  73.2 3.5   93.8 0.8
t2t       43.1 8.8  43.1 14.1 56.2 1.4  60.4 8.9  62.2 4.4  74.2 6.3  65.4 13.4  55.7 10.8
openmatch 99.3 0.9  99.7 0.2  99.3 0.2  87.0 1.1  86.5 2.1  86.2 0.6  86.8 1.4   96.4 0.7
anedl     98.5 0.2  99.0 0.2  99.4 0.1  90.3 0.1  91.1 0.4  89.2 0.5  91.1 1.0   96.6 0.3
"""
ERROR = """
fixmatch  43.2 1.2  29.8 0.6  16.3 0.5  35.4 0.7  27.3 0.8  41.2 0.7  34.1 0.4  12.9 0.4
mtc       20.3 0.9  13.7 0.9  9.0 0.5   33.5 1.2  27.9 0.5  40.1 0.8  33.6 0.3  13.6 0.7
t2t       10.4 1.2  11.3 1.3  9.5 1.4   29.1 0.9  27.0 0.4  35.7 1.4  31.6 1.0  12.2 0.9
openmatch 10.4 0.9  7.1 0.5   5.9 0.5   27.7 0.4  24.1 0.6  33.4 0.2  29.5 0.3  10.4 1.0
anedl     9.6 0.4   7.0 0.4   5.5 0.2   26.7 0.2  23.2 0.6  32.3 0.3  28.5 0.2  11.3 0.4
"""
# AUROC, error, and what each ablation on cifar100-55/50 changes of our method.
ABLATIONS = {
    ("ablation-ano", "no NO"): (
        88.4, 0.4, 27.0, 0.3, {"negative": False, "adaptive": False, "kl": "original"}
    ),
    ("ablation-ano", "NO, no"): (89.0, 0.3, 26.9, 0.3, {"adaptive": False}),
    ("ablation-ano", "NO and"): (90.3, 0.1, 26.7, 0.2, {}),
    ("ablation-metric", "selection by M_Inference, inference by M_Inf"): (
        89.8, 0.2, 27.8, 0.2, {"selection_score": "top_m_evidence"},
    ),
    ("ablation-metric", "selection by M_Self-training, inference by M_Self"): (
        88.4, 0.3, 26.7, 0.2, {},
    ),
    ("ablation-metric", "selection by M_Self-training, inference by M_Inf"): (
        90.3, 0.1, 26.7, 0.2, {},
    ),
    ("ablation-kl", "original"): (89.9, 0.3, 27.0, 0.2, {"kl": "original"}),
    ("ablation-kl", "strengthened KL, P = 100"): (90.3, 0.1, 26.7, 0.2, {}),
    ("ablation-kl", "strengthened KL, P = 200"): (89.9, 0.9, 26.9, 0.2, {"target_evidence": 200.0}),
    ("ablation-debias", "OpenMatch"): (87.0, 1.1, 27.7, 0.4, {}),
    ("ablation-debias", "without"): (90.0, 0.5, 27.0, 0.2, {"debias": False}),
    ("ablation-debias", "with D"): (90.3, 0.1, 26.7, 0.2, {}),
}  # fmt: skip


def table(text):
    """(method, setting) → value and deviation."""
    cells = {}
    for line in text.strip().splitlines():
        method, *numbers = line.split()
        pairs = zip(map(float, numbers[::2]), map(float, numbers[1::2]), strict=True)
        cells |= {(method, s): pair for s, pair in zip(SETTING_NAMES, pairs, strict=True)}
    return cells


@pytest.fixture(scope="module")
def published():
    return read_published(FILE)


def test_every_number_of_the_main_tables_is_there(published):
    rows = [item for item in published if item.what == "tables-1-2"]
    assert {(i.method, i.setting): (i.auroc, i.auroc_std) for i in rows} == table(AUROC)
    assert {(i.method, i.setting): (i.error, i.error_std) for i in rows} == table(ERROR)
    assert len(rows) == 40


def test_every_ablation_is_there_with_the_options_that_make_it(published):
    kinds = {what for what, _ in ABLATIONS}
    rows = [item for item in published if item.what in kinds]
    assert len(rows) == len(ABLATIONS)
    for (what, start), expected in ABLATIONS.items():
        (item,) = [i for i in rows if i.what == what and i.variant.startswith(start)]
        found = (item.auroc, item.auroc_std, item.error, item.error_std, item.options)
        assert found == expected
        assert item.setting == "cifar100-55/50"
        spec = make_spec(item.setting, item.method, options=item.options)
        # A full-length run made so is recognised as this ablation and as nothing else.
        assert differing_options(json.loads(json.dumps(spec.to_json()))) == item.options


def test_pictures_are_recorded_as_not_available(published):
    figures = {
        (item.setting, item.method): item.unavailable
        for item in published
        if item.what == "figure-miniimagenet"
    }
    assert figures == {
        (f"miniimagenet-{known}/50", method): ("error", "auroc")
        for known in (50, 60, 80)
        for method in ("anedl", "openmatch")
    }
    (curve,) = [item for item in published if item.what == "ablation-m"]
    assert curve.unavailable == ("auroc",)


def test_contradicting_numbers_all_stand(published):
    found = matching(published, "cifar10-6/50", "fixmatch", {})
    assert [item.error for item in found] == [43.2, 7.4, 19.82]


@pytest.mark.parametrize(
    ("method", "accuracies"),
    [("ssb", (92.18, 73.70, 67.97)), ("SimMatch+SSB", (90.82, 75.15, 70.27))],
)
def test_accuracies_are_turned_into_errors(published, method, accuracies):
    settings = ("cifar10-6/50", "cifar100-55/50", "cifar100-80/50")
    for setting, accuracy in zip(settings, accuracies, strict=True):
        (item,) = matching(published, setting, method, {})
        assert item.error == pytest.approx(100 - accuracy)
        assert f"{accuracy:.2f}" in item.note
        assert item.comparable == ("error",), "its AUROC averages other sets of outliers"
        assert "cannot" in item.note


def test_every_item_says_where_it_stands_and_uses_our_names(published):
    for item in published:
        assert item.source
        assert item.note
        assert item.setting in SETTINGS or " " in item.setting
        assert item.method in METHODS or "+" in item.method
        for value in (item.error, item.auroc, item.error_std, item.auroc_std):
            assert value is None or 0 < value < 100
    described = {item.setting for item in published} - set(SETTINGS)
    assert any("25 labels" in setting for setting in described)


def test_no_file_is_no_numbers(tmp_path):
    assert read_published(tmp_path / "published.json") == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"error": "forty"}, "error"),
        ({"options": 3}, "options"),
        ({"source": None}, "source"),
        ({"what": ...}, "no 'what'"),
    ],
)
def test_a_wrong_item_is_named(tmp_path, change, said):
    records = json.loads(FILE.read_text(encoding="utf-8"))[:2]
    records[1] |= change
    records[1] = {key: value for key, value in records[1].items() if value is not ...}
    path = tmp_path / "published.json"
    path.write_text(json.dumps(records))
    with pytest.raises(AnedlError, match=rf"published\.json: item 2 .*{said}"):
        read_published(path)


@pytest.mark.parametrize("text", ["[1", "{}", "[3]"])
def test_a_file_that_is_no_list_of_numbers_is_told(tmp_path, text):
    path = tmp_path / "published.json"
    path.write_text(text)
    with pytest.raises(AnedlError, match=r"published\.json"):
        read_published(path)


def test_numbers_are_found_from_anywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert len(read_published(published_file(tmp_path / "results"))) > 50
    (tmp_path / "published.json").write_text("[]")
    assert read_published(published_file(tmp_path)) == [], "one's own come first"
