import base64
import hashlib
import json
import re
import sys
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tests.report.own_run import decide, edit_triage, make_own_run

from anedl.conformal import clopper_pearson, percent
from anedl.data.dataset import LabelledImages
from anedl.data.digits import load_digits
from anedl.errors import AnedlError
from anedl.intake.names import shown
from anedl.report import write_report
from anedl.report.album import MOST_IMAGES
from anedl.report.images import check_images
from anedl.report.judged import read_judged, read_pile
from anedl.report.page import encodable, json_block, tight
from anedl.report.pictures import confusion_caption
from anedl.report.run_folder import read_run
from anedl.report.sections import duration, written
from anedl.triage.verdict import Rules

HOSTILE = "<script>alert('$x_{')</script>&\"</script><!--"


class Page(HTMLParser):
    """The elements and the visible text of a page."""

    def __init__(self, source):
        super().__init__()
        self.elements, self.text, self.scripts, self._open = [], [], [], []
        self.feed(source)
        self.text = " ".join(" ".join(self.text).split())

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        self._open.append(tag)
        if tag == "script":
            self.scripts.append("")

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        while self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data):
        if self._open and self._open[-1] == "script":
            self.scripts[-1] += data
        elif not self._open or self._open[-1] != "style":
            self.text.append(data)

    def all(self, tag, kind=None):
        found = [attributes for name, attributes in self.elements if name == tag]
        return [a for a in found if kind is None or kind in a.get("class", "").split()]

    @property
    def data(self):
        return json.loads(self.scripts[0])


def is_shown(page, name):
    (attributes,) = (a for _, a in page.elements if a.get("id") == name)
    return "hidden" not in attributes


def read_page(path):
    source = path.read_text(encoding="utf-8")
    return source, Page(source)


def test_the_page_holds_every_figure_with_words_for_it(make_run):
    folder = make_run()
    source, page = read_page(write_report(folder))
    assert (folder / "report.html").is_file()
    assert "is taken for 2 of the 6 classes" in " ".join(source.split())
    charts = page.all("svg", "chart")
    figures = [a["id"] for a in page.all("figure") if a.get("id", "").startswith("figure-")]
    assert figures == [
        "figure-spread", "figure-roc", "figure-oscr", "figure-top-m", "figure-reliability",
        "figure-curves", "figure-selection",
    ]  # fmt: skip
    assert len(charts) == len(figures)
    spoken = [*charts, *page.all("svg", "spread"), *page.all("svg", "plane")]
    for picture in spoken:
        assert len(picture["aria-label"]) > 30
    assert len(page.all("table", "confusion")) == 1
    for thumb in page.all("svg", "thumb"):
        assert thumb["aria-label"]


def test_every_image_that_is_shown_is_stored_once(make_run, blank_pictures):
    _, page = read_page(write_report(make_run()))
    stored = [image["id"] for image in page.all("image")]
    shown = [use["href"].removeprefix("#") for use in page.all("use")]
    shown += [point["data-image"] for point in page.all("path", "point") if "data-image" in point]
    shown += [row[0] for row in page.data["shown"]]
    assert len(stored) == len(set(stored)) <= MOST_IMAGES
    assert set(shown) == set(stored)
    assert len(shown) > len(stored)  # some are shown in several places


def test_the_page_opens_with_what_was_trained_and_how_well(make_run, blank_pictures):
    folder = make_run()
    _, page = read_page(write_report(folder))
    run = read_run(folder)
    last = run.results["last"]["test"]
    truth = run.pool["truth"]
    rejected = run.test["score"] < run.results["last"]["thresholds"]["score"]
    inlier = run.test_targets >= 0
    for words in (
        "18 labelled images of 6 known classes",
        f"{len(run.split.pool):,} unlabelled",
        f"{100 * last['error']:.1f} %",
        f"{100 * last['by_score']['score']['auroc']:.1f} %",
        f"by max softmax: {100 * last['by_score']['max_softmax']['auroc']:.1f} %",
        f"{100 * np.mean(truth < 0):.0f} %",
        f"rejects {100 * rejected[inlier].mean():.1f} % of inliers, "
        f"{100 * rejected[~inlier].mean():.1f} % of outliers",
        run.split.digest,
        "44 s",
        "a <fast> machine",
        "oracle knowledge",
        f"anedl train --config {folder / 'config.json'}",
        "train.pretrain_epochs",
        "E_FM: epochs before self-training starts",
        "Whether the pool helped cannot be told from one run",
        f"calibration error, 15 bins) is {100 * last['ece']:.1f} %",
    ):
        assert words in page.text, words


def test_the_page_does_not_say_where_a_users_file_lies(make_run, blank_pictures, tmp_path):
    file = tmp_path / "private" / "mine.py"
    file.parent.mkdir()
    file.write_text("from anedl.methods.supervised import Supervised as Mine\n")
    folder = make_run(method=f"{file}:Mine")
    raw, page = read_page(write_report(folder))
    assert "<title>mine.py:Mine on digits, seed 0" in raw
    assert "mine.py:Mine was trained on 18 labelled images" in page.text
    assert "private" not in raw


def test_an_own_run_opens_with_what_its_owner_asks(own_run, blank_pictures):
    _, page = read_page(write_report(own_run.folder))
    pollution = json.loads((own_run.folder / "fit.json").read_text())["pollution"]
    run = read_run(own_run.folder)
    parts = (run.validation, run.test)
    wrong = sum(int((p["logits"].argmax(1) != p["targets"]).sum()) for p in parts)
    low, high = clopper_pearson(wrong, 48, 0.9)
    unknown = int(np.sum(own_run.pile_scores < own_run.hidden[1]))
    for words in (
        "A pile of 120 images, sorted",
        "12 labelled images of 3 known classes and 159 unlabelled ones, 39 of them known inliers",
        f"{wrong} of 48 wrong 90 % interval {percent(low)} to {percent(high)}",
        f"{100 * pollution['share']:.0f} %",
        f"90 % interval {percent(pollution['low'])} to {percent(pollution['high'])}",
        f"{own_run.hidden[1]:.4g}",
        "rejects at most 5 % of true inliers on average",
        "Did the pile help? yes error 12.5 % with it, 25 % from the labels alone",
        f"{unknown} unknown",
        "There is no AUROC",
        "Training took only 20 steps.",
        "A choice, no promise.",
        "no ROC and OSCR curves",
        "How pure the selected images are cannot be shown",
        "anedl fit 'my labelled' 'a <pile>' --out NEW_FOLDER --seed 0",
        "--epochs 2 --epoch-steps 10",
    ):
        assert words in page.text, words
    titles = {"The surest of each class", "Clusters of the unknown", "The most unknown"}
    assert all(title in page.text for title in titles)


def test_an_own_run_says_what_people_decided(own_run, blank_pictures):
    _, page = read_page(write_report(own_run.folder))
    assert "People decided" not in page.text
    assert "of the 120 images of the pile, estimated" in page.text
    accepted = list(np.flatnonzero(np.array(read_run(own_run.folder).triage.state) == "accept"))
    decide(own_run, labelled=accepted[:7], unknown=[])
    fit = json.loads((own_run.folder / "fit.json").read_text())
    fit["pollution"]["pile"] = 113
    (own_run.folder / "fit.json").write_text(json.dumps(fit))
    _, page = read_page(write_report(own_run.folder))
    unknown = list(read_run(own_run.folder).triage.state).count("unknown")
    for words in (
        f"People decided 7 of the {len(accepted)} accepted and none of the {unknown} unknown "
        "before this run; the share of no known class is estimated for the 113 others.",
        "of the 113 images that nobody has decided about, estimated",
        "There is no AUROC: people decided about 7 images of the pile, but they picked which",
        "for these some held-out images must be known to be outliers",
    ):
        assert words in page.text, words
    assert "nobody has said" not in page.text


def test_the_page_asks_nothing_of_the_network_and_obeys_its_own_policy(make_run, blank_pictures):
    source, page = read_page(write_report(make_run()))
    assert {"link", "iframe", "object", "base", "form"}.isdisjoint(t for t, _ in page.elements)
    for _, attributes in page.elements:
        assert not [
            name for name in attributes if name.startswith("on") or name in ("style", "src")
        ]
        assert re.match(r"#|data:image/(png|jpeg);base64,", attributes.get("href", "#"))
    styles = re.findall(r"<style>(.*?)</style>", source, re.S)
    scripts = re.findall(r"<script>(.*?)</script>", source, re.S)
    assert (len(styles), len(scripts)) == (1, 1)
    (policy,) = [a["content"] for a in page.all("meta") if "http-equiv" in a]
    hashes = [
        base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        for text in (*styles, *scripts)
    ]
    assert policy == (
        f"default-src 'none'; img-src data:; style-src 'sha256-{hashes[0]}'; "
        f"script-src 'sha256-{hashes[1]}'; base-uri 'none'; form-action 'none'"
    )
    without_names = styles[0] + scripts[0].replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?:|url\((?!#)|@import|fetch\(|XMLHttpRequest", without_names)
    assert "prefers-color-scheme: dark" in source
    assert "@media print" in source


def test_hostile_names_stay_text(tmp_path, blank_pictures):
    files = [f"{HOSTILE}.png", "two\\x0alines \\xff.png", "\u2028'onerror=alert(1).png"]
    own = make_own_run(tmp_path / "own", classes=(HOSTILE, "b'\"", "c"), names=files)
    _, page = read_page(write_report(own.folder))
    assert [tag for tag, _ in page.elements].count("script") == 2
    assert not [a for _, a in page.elements if any(name.startswith("on") for name in a)]
    assert HOSTILE in page.text
    titles = [a["aria-label"] for a in page.all("svg", "thumb")] + [page.text]
    assert any(f"{HOSTILE}.png: " in title for title in titles)
    at_hand = {row[2] for row in page.data["shown"]}
    assert set(files) <= at_hand  # all of a small pile are at hand for the slider


def test_a_class_that_only_the_table_names_is_shown_as_such(own_run, blank_pictures):
    for row in (0, 1):
        edit_triage(own_run.folder, row, **{"state": "accept", "class": "my new class"})
    _, page = read_page(write_report(own_run.folder))
    assert "my new class (new to the model) 0 – – – – 2 0 0" in page.text  # class by class
    assert f"{own_run.names[0]}: accepted, called my new class (new to the model)," in page.text
    (row,) = (row for row in page.data["shown"] if row[2] == own_run.names[0])
    assert row[3:] == ["my new class (new to the model)", "called my new class (new to the model)"]
    assert "known classes cat, dog, fox" in page.text


def test_an_odd_class_name_is_escaped_once(tmp_path, blank_pictures):
    own = make_own_run(tmp_path / "own", classes=(shown("new\nline"), "dog", "fox"))
    _, page = read_page(write_report(own.folder))
    assert "new\\x0aline" in page.text
    assert "x5c" not in page.text


def test_json_in_a_page_cannot_leave_its_element():
    document = {"a": "</script><!-- <script> ]]> \u2028\u2029 é \udcff", "b": [1.5, None]}
    text = json_block(document)
    assert not set("<>&\u2028\u2029") & set(text)
    assert text.isascii()
    assert json.loads(text) == document


def test_what_utf8_cannot_hold_is_written_out():
    assert encodable("a\udcffb") == "a\\udcffb"


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
    assert f"{hostile} 2,000 98.7 90.0 80.0 7.1 65.4" in page.text


def test_a_method_without_evidence_gets_the_figures_it_can(make_run, blank_pictures):
    _, page = read_page(write_report(make_run(method="supervised")))
    assert len(page.all("svg", "chart")) == 5  # neither M nor a selection
    assert not page.all("svg", "plane")
    assert "has no such uncertainties" in page.text
    assert "oracle" not in page.text
    assert "self-training" not in page.text.split("How it was made")[0]


def test_images_of_another_data_set_are_not_shown(make_run, blank_pictures):
    folder = make_run()
    path = folder / "outputs" / "pool-last.safetensors"
    pool = load_file(path)
    pool["truth"] = np.roll(pool["truth"], 1)
    save_file(pool, path)
    with pytest.raises(AnedlError, match="not the one the run was trained on"):
        check_images(read_run(folder), load_digits())
    _, page = read_page(write_report(folder))
    assert not page.all("image")
    assert not page.all("use")
    assert "The images themselves are not shown: the data set digits found here" in page.text
    assert page.all("path", "point")  # the points are there, without pictures


def test_an_own_run_without_its_cache_is_told_without_images(own_run, blank_pictures):
    for path in (own_run.folder / "cache").iterdir():
        path.unlink()
    (own_run.folder / "cache").rmdir()
    _, page = read_page(write_report(own_run.folder))
    assert not page.all("image")
    assert "the decoded images of this run are gone" in page.text
    assert len(page.data["groups"]) == 2


def test_of_image_files_only_those_shown_are_decoded_as_the_model_saw_them(
    make_run, blank_pictures, monkeypatch
):
    digits = load_digits()
    asked = []

    class Photographs:
        def __len__(self):
            return len(digits.train)

        def __getitem__(self, index):
            asked.append(index)
            return np.full((30, 41, 3), 10 + index % 200, dtype=np.uint8)

    photographs = replace(digits, train=LabelledImages(Photographs(), digits.train.labels))
    monkeypatch.setattr("anedl.report.images.load_dataset", lambda *_: photographs)
    _, page = read_page(write_report(make_run()))
    assert len(asked) == len(set(asked)) == len(page.all("image")) < len(digits.train)
    header = base64.b64decode(page.all("image")[0]["href"].split(",")[1])
    assert int.from_bytes(header[16:20], "big") == 8  # the width of a PNG: framed as the model saw


def test_a_pool_without_truth_is_shown_without_verdicts(make_run, blank_pictures):
    folder = make_run()
    path = folder / "outputs" / "pool-last.safetensors"
    pool = load_file(path)
    del pool["truth"]
    save_file(pool, path)
    _, page = read_page(write_report(folder))
    assert page.all("image")
    assert not page.all("figure", "outlier")
    assert "in truth" not in page.text
    assert "✓" not in page.text


def test_a_test_set_without_outliers_has_no_roc(make_run, blank_pictures):
    folder = make_run()
    path = folder / "outputs" / "test-last.safetensors"
    test = load_file(path)
    known = test["targets"] >= 0
    save_file({name: np.ascontiguousarray(v[known]) for name, v in test.items()}, path)
    _, page = read_page(write_report(folder))
    assert "There is no AUROC: the test images hold no outliers." in page.text
    assert "of telling outliers" not in page.text
    assert "figure-roc" not in {a.get("id") for a in page.all("figure")}
    assert "figure-spread" in {a.get("id") for a in page.all("figure")}


def test_too_few_held_out_images_are_told_at_the_top(tmp_path, blank_pictures):
    own = make_own_run(tmp_path / "own", held=9)
    _, page = read_page(write_report(own.folder))
    assert "nothing is rejected: 9 held-out images cannot certify 5 %" in page.text
    assert page.data["cut"] is None
    # What is not rejected is not lost either, and no line is there to speak of.
    assert is_shown(page, "cut-harmless")
    assert not is_shown(page, "cut-promise")
    assert "This run has no threshold of its own, so it rejects nothing." in page.text
    assert "this run none 0 % 0 (0.0 %) 0 (0.0 %)" in page.text
    assert "dashed threshold" not in page.text
    assert not page.all("line", "own")
    assert "None of the held-out images is answered with “unknown”" in page.text


def test_one_epoch_is_no_epochs(own_run, blank_pictures):
    _, page = read_page(write_report(own_run.folder))
    assert "begins after 1 epoch (shaded)" in page.text


def test_a_threshold_that_rejects_says_what_it_costs(own_run, blank_pictures):
    _, page = read_page(write_report(own_run.folder))
    assert is_shown(page, "cut-promise")
    assert not is_shown(page, "cut-harmless")
    assert "Expected loss of true inliers: at most 5 % on average" in page.text
    assert "what is left of the dashed threshold is called unknown" in page.text
    assert "new images (not " in page.text
    assert len(page.all("line", "own")) == 1


def test_both_thresholds_are_shown_and_told_apart(own_run, blank_pictures):
    _, page = read_page(write_report(own_run.folder))
    pile, new = (f"{scores[1]:.4g}" for scores in (own_run.hidden, own_run.fresh))
    assert pile != new
    for words in (
        f"Threshold, pile {pile} rejects at most 5 %",
        "set by 39 known images hidden in it",
        f"Threshold, new images {new} rejects at most 5 %",
        "set by 39 known images that training never saw",
        f"called unknown; the dotted line is {new}, the threshold for new images.",
        f"Turned away: with a score below {new}, the threshold for new images (not {pile}, the",
        f"turned away as unknown, with a score below {new}, the threshold for new images (not",
        f"held-out images with a score below {new}, the threshold for new images (not {pile}, the "
        "pile's), answered with “unknown”. Some of these images themselves have set that threshold",
    ):
        assert words in page.text, words


def test_the_card_for_new_images_names_their_second_threshold(tmp_path, blank_pictures):
    own = make_own_run(tmp_path / "own", held=80)
    _, page = read_page(write_report(own.folder))
    assert "a familiarity below" not in page.text
    path = own.folder / "calibration.json"
    familiar = np.linspace(1, 2, 80).tolist()
    path.write_text(json.dumps(json.loads(path.read_text()) | {"familiar": familiar}))
    limit = read_run(own.folder).calibration.threshold("new")
    assert np.isfinite(limit.familiarity)
    _, page = read_page(write_report(own.folder))
    second = f"rejects a familiarity below {limit.familiarity:.4g} too"
    assert f"Threshold, new images {limit.value:.4g} {second}" in page.text
    assert page.text.count(second) == 1


def test_accepted_is_a_verdict_and_nothing_else(own_run, blank_pictures):
    source, page = read_page(write_report(own_run.folder))
    assert "at this cut above the cut below the cut below (%)" in page.text
    assert "found, that is not turned away and named rightly" in page.text
    states = r"\d+ accepted \(|\d+ accepted|pile: accepted|: accepted,"
    verdicts = (
        r"of those above it some are accepted|some of the accepted|the accepted and those for"
    )
    told = re.sub(f"{states}|{verdicts}", "", page.text)
    assert "accepted" not in told, told[told.index("accepted") - 80 :][:160]
    (script,) = (text for text in re.findall(r"<script>(.*?)</script>", source, re.S))
    assert "accepted" not in script


def test_strangers_that_were_not_called_unknown_are_said_to_lie_elsewhere(own_run, blank_pictures):
    path = own_run.folder / "fit.json"
    fit = json.loads(path.read_text())
    state = np.array(read_run(own_run.folder).triage.state)
    unknown = np.flatnonzero(state == "unknown")
    count = len(unknown)
    assert 0 < count < 90

    def told(**found):
        path.write_text(json.dumps(fit | {"pollution": fit["pollution"] | found}))
        return read_page(write_report(own_run.folder))[1].text

    few, many = (count + 0.4) / 120, (count + 12.4) / 120
    least = (count + 2.4) / 120
    page = told(low=least, share=many, high=0.9)
    assert (
        f"By the estimate about {count + 12} of the 120 images are of no known class (at its low "
        f"end {count + 2}), and {count} of them are called unknown: about 12 (at its low end 2) or "
        "more of no known class lie among the accepted and those for review."
    ) in page
    for doubt in ({"low": few}, {"low": 0.0}, {"low": least, "doubtful": True}):
        assert "By the estimate about" not in told(**{"share": many, "high": 0.9} | doubt)
    # What a person called unknown is not part of the estimate.
    decide(own_run, labelled=[], unknown=unknown[:3])
    page = told(low=least, share=many, high=0.9, pile=120)
    assert "120 images that nobody has decided about are of no known class" in page
    assert f"{count - 3} of them are called unknown: about 15 (at its low end 5) or" in page


def test_a_caution_about_classes_says_that_it_is_not_about_strangers(own_run, blank_pictures):
    words = "A choice, no promise. This is about known classes mixed up alone: no validation image"
    assert words in read_page(write_report(own_run.folder))[1].text
    path = own_run.folder / "fit.json"
    fit = json.loads(path.read_text())
    path.write_text(json.dumps(fit | {"confidence": {"certified": True, "sentence": "sure"}}))
    assert "mixed up alone" not in read_page(write_report(own_run.folder))[1].text


def test_wrong_classes_that_are_turned_away_are_counted(own_run):
    run = read_run(own_run.folder)
    pile, judged = read_pile(run), read_judged(run)
    targets = judged.targets.copy()
    targets[:4] = (judged.predicted[:4] + 1) % 3
    judged = replace(judged, targets=targets)
    wrong = np.flatnonzero(judged.predicted != judged.targets)
    assert len(wrong) > 1
    lowest = np.sort(judged.score[wrong])
    for cut, away in ((lowest[0], 0), (lowest[1], 1), (lowest[-1] + 1, len(wrong))):
        caption = confusion_caption(run, replace(judged, cut=cut), pile)
        said = f"Of the {len(wrong)} that the error counts, whose likeliest class is wrong, {away} "
        assert (said in caption) == (away > 0)
        assert ("error counts" in caption) == (away > 0)


def test_words_below_images_can_be_read_whole(own_run, blank_pictures):
    _, page = read_page(write_report(own_run.folder))
    titles = [span["title"] for span in page.all("span") if "title" in span]
    assert {"cat", "dog", "fox"} <= set(titles)


# 39 hidden inliers would set a threshold, 9 would not; by folds neither do.
@pytest.mark.parametrize("held", [39, 9])
def test_a_pile_judged_by_folds_has_no_one_cut(tmp_path, blank_pictures, held):
    rules = Rules(level=0.05, confidence=0.9, folds=5)
    own = make_own_run(tmp_path / "own", rules=rules, held=held)
    edit_triage(own.folder, 0, state="unknown")
    _, page = read_page(write_report(own.folder))
    assert "p ≤ 5 % judged by 5 models in turn" in page.text
    assert "by 5 models in turn, not by one cut" in page.text
    assert page.data["cut"] is None
    assert is_shown(page, "cut-harmless")
    assert not page.all("line", "own")
    for words in (
        f"{held} of them known inliers, hidden among the pile to compare it with",
        "The pile was judged by 5 further models in turn",
        "This run has no threshold of its own.",
        "no threshold is drawn, for images are not called unknown by this score: 5 further models",
    ):
        assert words in page.text, words
    for words in ("dashed threshold", "to judge it by", "this run none", "therefore judged by"):
        assert words not in page.text, words


def test_folds_that_cannot_reject_are_told_at_the_top(tmp_path, blank_pictures):
    own = make_own_run(tmp_path / "own", rules=Rules(level=0.05, confidence=0.9, folds=5))
    path = own.folder / "fit.json"
    fit = json.loads(path.read_text())
    note = "40 images in 5 folds cannot reject anything at 5 %: the finest level is 11.1 %"
    fit["calibration"] = {"thresholds": {"pile": {"certified": 0.0, "note": note}}}
    path.write_text(json.dumps(fit))
    _, page = read_page(write_report(own.folder))
    assert f"Threshold, pile none nothing is rejected: {note}" in page.text
    # New images are judged by the last model, whatever the folds can do.
    assert f"Threshold, new images {own.fresh[1]:.4g} rejects at most 5 %" in page.text


def test_the_model_of_the_labels_alone_has_a_report_too(own_run, blank_pictures):
    for name in ("triage.csv", "calibration.json", "fit.json"):
        (own_run.folder / name).unlink()
    _, page = read_page(write_report(own_run.folder))
    assert "anedl on own images, seed 0" in page.text
    assert "the run kept no scores of held-out inliers" in page.text
    assert any(own_run.names[0] in row[2] for row in page.data["shown"])
    assert "The most doubtful" in page.text


def test_many_classes_get_a_picture_in_place_of_a_table(tmp_path):
    names = [f"class {i}" for i in range(40)]
    _, page = read_page(write_report(make_own_run(tmp_path / "own", classes=names).folder))
    assert not page.all("table", "confusion")
    assert "figure-confusion" in {a.get("id") for a in page.all("figure")}


def test_a_pile_of_fifty_thousand_fits_one_small_file(tmp_path, blank_pictures):
    own = make_own_run(tmp_path / "own", 50_000, [f"c{i}" for i in range(60)], side=32, held=200)
    path = write_report(own.folder)
    assert path.stat().st_size < 15_000_000
    _, page = read_page(path)
    assert 500 < len(page.all("image")) <= MOST_IMAGES
    scores = base64.b64decode(page.data["groups"][0]["scores"][1:])
    np.testing.assert_array_equal(np.frombuffer(scores, "<f4"), np.sort(own.pile_scores))


@pytest.mark.parametrize("package", ["jinja2", "matplotlib"])
def test_without_its_packages_the_extra_is_named(package, make_run, monkeypatch):
    folder = make_run()
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(AnedlError, match=rf'{package}.*pip install "anedl\[report\]"'):
        write_report(folder)


def test_numbers_have_a_minus_and_names_their_hyphens():
    assert (
        tight("-1.7 points (-8.5 to +4.4, 3 %)")
        == "−1.7 points (−8.5 to +4.4, 3\N{NO-BREAK SPACE}%)"
    )
    for text in ("--minutes 5", "2026-11-19", "wrn-10-1", "1e-5", "a.-3", "photos/-3.png"):
        assert tight(text) == text


def test_numbers_in_words():
    assert [duration(s) for s in (44.2, 599, 8000)] == ["44 s", "10 min", "2 h 13 min"]
    assert written([0.03, True, None]) == "0.03, yes, not set"
