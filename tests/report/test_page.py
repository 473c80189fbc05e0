import base64
import json
import re
import sys
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from anedl.data.dataset import LabelledImages
from anedl.data.digits import load_digits
from anedl.errors import AnedlError
from anedl.report import contact_sheet, write_report
from anedl.report.pictures import LOOSE_IMAGES, check_images, number_writer, run_pictures
from anedl.report.run_folder import read_run
from anedl.report.sections import duration, written


class Page(HTMLParser):
    """The pictures, the headings and the visible text of a page."""

    def __init__(self, source):
        super().__init__()
        self.pictures, self.tags, self.text = [], [], []
        self.feed(source)
        self.text = " ".join(" ".join(self.text).split())

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        if tag == "img":
            self.pictures.append(dict(attributes))

    def handle_data(self, data):
        self.text.append(data)


def read_page(path):
    source = path.read_text(encoding="utf-8")
    return source, Page(source)


def test_the_page_holds_every_figure_with_words_for_it(make_run):
    folder = make_run()
    _, page = read_page(write_report(folder))
    assert (folder / "report.html").is_file()
    # ROC, histograms, M, confusion, curves, selection and three contact sheets.
    assert len(page.pictures) == 9
    for picture in page.pictures:
        head, data = picture["src"].split(",")
        assert head == "data:image/png;base64"
        assert base64.b64decode(data).startswith(b"\x89PNG")
        assert len(picture["alt"]) > 30
        assert 300 < int(picture["width"]) < 920


def test_the_page_opens_with_what_was_trained_and_how_well(make_run, blank_pictures):
    folder = make_run()
    _, page = read_page(write_report(folder))
    run = read_run(folder)
    last = run.results["last"]["test"]
    for words in (
        "18 labelled images of 6 known classes",
        f"{len(run.split.pool):,} unlabelled",
        f"{100 * last['error']:.1f} %",
        f"{100 * last['by_score']['score']['auroc']:.1f} %",
        f"{100 * last['by_score']['max_softmax']['auroc']:.1f} %",
        run.split.digest,
        "44 s",
        "a <fast> machine",
        "oracle knowledge",
        f"anedl train --config {folder / 'config.json'}",
        "train.pretrain_epochs",
        "E_FM: epochs before self-training starts",
    ):
        assert words in page.text, words


def test_the_page_asks_nothing_of_the_network(make_run, blank_pictures):
    source, page = read_page(write_report(make_run()))
    without_pictures = re.sub(r'src="data:[^"]*"', "", source)
    assert not re.search(r"https?:|//\w|url\(|@import|\bsrc=|\bhref=", without_pictures)
    assert not {"script", "link", "iframe"} & set(page.tags)
    assert "prefers-color-scheme: dark" in source
    assert "@media print" in source


def test_a_hostile_class_name_stays_text(make_run, blank_pictures):
    hostile = "<script>alert('$x_{')</script>&\""
    _, page = read_page(write_report(make_run(names=[hostile, "b", "c", "d", "e", "f"])))
    assert "script" not in page.tags
    assert hostile in page.text


def test_outliers_from_elsewhere_have_a_table_of_their_own(make_run, blank_pictures):
    folder = make_run()
    _, page = read_page(write_report(folder))
    assert "Outliers from elsewhere" not in page.text  # a run that recorded none
    hostile = "folder:/<script>alert(1)</script>"
    row = {"auroc": 0.987, "aupr_in": 0.9, "aupr_out": 0.8, "fpr95": 0.071, "rejected": 0.654}
    path = folder / "results.json"
    results = json.loads(path.read_text())
    results["last"]["unseen"] = {hostile: {"images": 2000, "by_score": {"score": row}}}
    path.write_text(json.dumps(results))
    _, page = read_page(write_report(folder))
    assert "script" not in page.tags
    assert f"{hostile} 2,000 98.7 90.0 80.0 7.1 65.4" in page.text


def test_a_method_without_evidence_gets_the_figures_it_can(make_run, blank_pictures):
    _, page = read_page(write_report(make_run(method="supervised")))
    assert len(page.pictures) == 7  # neither M nor a selection
    assert "oracle" not in page.text
    assert "self-training" not in " ".join(picture["alt"] for picture in page.pictures)


def test_images_of_another_data_set_are_not_shown(make_run, blank_pictures):
    folder = make_run()
    path = folder / "outputs" / "pool-last.safetensors"
    pool = load_file(path)
    pool["truth"] = np.roll(pool["truth"], 1)
    save_file(pool, path)
    run = read_run(folder)
    with pytest.raises(AnedlError, match="not the one the run was trained on"):
        check_images(run, load_digits())
    pictures, notes = run_pictures(run)
    assert len(pictures) == 6
    assert "The pool images are not shown" in notes[0]


def test_of_image_files_only_those_shown_are_decoded_as_the_model_saw_them(
    make_run, blank_pictures, monkeypatch
):
    digits = load_digits()
    asked, shapes = set(), set()

    class Photographs:
        def __len__(self):
            return len(digits.train)

        def __getitem__(self, index):
            asked.add(index)
            return np.full((30, 41, 3), 10 + index % 200, dtype=np.uint8)

    photographs = replace(digits, train=LabelledImages(Photographs(), digits.train.labels))
    monkeypatch.setattr("anedl.report.pictures.load_dataset", lambda *_: photographs)
    original = contact_sheet.sheet_figure

    def sheet_figure(strips):
        shapes.update(tile.pixels.shape for strip in strips for tile in strip.tiles)
        return original(strips)

    monkeypatch.setattr(contact_sheet, "sheet_figure", sheet_figure)
    pictures, notes = run_pictures(read_run(make_run()))
    assert notes == []
    assert len(pictures) == 9
    assert 0 < len(asked) <= 6 * contact_sheet.COLUMNS + 2 * LOOSE_IMAGES < len(digits.train) / 2
    assert shapes == {(8, 8, 3)}


def test_a_pool_without_truth_is_shown_without_verdicts(make_run, blank_pictures):
    folder = make_run()
    path = folder / "outputs" / "pool-last.safetensors"
    pool = load_file(path)
    del pool["truth"]
    save_file(pool, path)
    _, page = read_page(write_report(folder))
    assert len(page.pictures) == 9
    assert "Borders" not in page.text
    assert "of which" not in page.text


def test_a_test_set_without_outliers_has_no_roc(make_run, blank_pictures):
    folder = make_run()
    path = folder / "outputs" / "test-last.safetensors"
    test = load_file(path)
    known = test["targets"] >= 0
    save_file({name: np.ascontiguousarray(v[known]) for name, v in test.items()}, path)
    pictures, notes = run_pictures(read_run(folder))
    assert "no outliers" in notes[0]
    assert pictures[0].title == "What is taken for what"


def test_without_jinja2_the_extra_is_named(make_run, monkeypatch):
    folder = make_run()
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(AnedlError, match=r'jinja2.*pip install "anedl\[report\]"'):
        write_report(folder)


def test_numbers_in_words():
    assert [duration(s) for s in (44.2, 599, 8000)] == ["44 s", "10 min", "2 h 13 min"]
    assert written([0.03, True, None]) == "0.03, yes, not set"
    assert number_writer(np.array([0.5, 0.25]))(0.256) == "0.26"
    assert number_writer(np.array([3.0, 42.0]))(3.14159) == "3.1"
    assert number_writer(np.array([3.0, 4200.0]))(3141.59) == "3142"
