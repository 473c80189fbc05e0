"""The model card: what hubs read, what people read, and nothing that a name can break."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from anedl.calibration import Calibration
from anedl.data.split_file import read_split, write_split
from anedl.errors import ConfigError, DataError
from anedl.export.card import write_card
from anedl.export.markup import code, markdown, yaml, yaml_scalar
from anedl.intake.names import shown

HOSTILE = 'a"b\\c\n---\nlicense: mit <script>|`*_[x](http://evil.example)'


def test_front_matter_and_sections(make_run):
    folder = make_run()
    results = {
        "anedl": "0.1.0",
        "last": {
            "epoch": 4,
            "validation_error": 0.125,
            "test": {
                "error": 0.1,
                "ece": 0.02,
                "by_score": {"score": {"auroc": 0.9, "fpr95": 0.3}},
            },
            "thresholds": {"score": 12.5},
        },
    }
    (folder / "results.json").write_text(json.dumps(results))
    path = write_card(folder)
    assert path == folder / "README.md"
    _, head, body = path.read_text(encoding="utf-8").split("---\n", 2)
    assert 'library_name: "anedl"' in head
    assert 'pipeline_tag: "image-classification"' in head
    assert 'license: "other"' in head
    assert '- type: "accuracy"\n      name: "Accuracy, known classes"\n      value: 0.9' in head
    assert '- type: "roc_auc"' in head
    headings = re.findall(r"^## (.*)$", body, re.MULTILINE)
    assert headings == [
        "What it is", "Classes", "Data", "Figures", "How to use it", "Limits", "Licence",
    ]  # fmt: skip
    for row in (
        "| labelled | 12 |", "| unlabelled pile | 80 |", "| validation error, 8 images | 12.50 % |",
        "| test error, known classes, 10 images | 10.00 % |",
        "| AUROC, known against unknown | 90.00 % |",
    ):  # fmt: skip
        assert row in body
    assert "A score below 12.5 is rejected" in body
    assert "after epoch 5" in body


@pytest.mark.parametrize(("epoch", "networks"), [(3, None), (4, 2), (11, 3)])
def test_how_many_networks_judge(make_run, epoch, networks):
    """As many as had begun when the model was saved."""
    folder = make_run()
    config = json.loads((folder / "config.json").read_text())
    assert config["train"]["epochs"] == 12
    config["options"]["networks"] = 3
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "results.json").write_text(json.dumps({"last": {"epoch": epoch}}))
    (line,) = re.findall(r"- Network: .*", write_card(folder).read_text(encoding="utf-8"))
    assert re.findall(r"(\d+) that judge together", line) == ([str(networks)] if networks else [])


def test_a_calibrated_run_states_its_promise(make_run):
    folder = make_run(Calibration(np.arange(39.0), np.arange(9.0), 0.1))
    (folder / "fit.json").write_text(json.dumps({"summary": ["the pile *helped*", "a|b"]}))
    body = write_card(folder, licence="cc-by-4.0").read_text(encoding="utf-8")
    assert "rejects at most 10 % of true inliers" in body
    assert "| calibration, new to the model | 39 |" in body
    assert "| calibration, hidden in the pile | 9 |" in body
    assert 'license: "cc-by-4.0"' in body
    assert r"- the pile \*helped\*" in body
    assert r"- a\|b" in body
    assert "model-index" not in body  # there are no figures
    assert "calibrated again" in body


def test_held_out_images_of_ones_own_serve_twice(make_run):
    """The split of such a run holds ten test images, and they calibrate too."""
    folder = make_run(Calibration(np.arange(10.0), np.zeros(0), 0.2), own=True)
    body = write_card(folder).read_text(encoding="utf-8")
    assert "| test and calibration, new to the model | 10 |" in body
    assert "| test |" not in body


@pytest.mark.parametrize(
    ("first", "second", "stated"),
    [("cc-by-4.0", None, "cc-by-4.0"), ("mit", "cc-by-4.0", "cc-by-4.0"), (None, None, None)],
)
def test_a_card_that_is_written_again_keeps_its_licence(make_run, first, second, stated):
    folder = make_run()
    write_card(folder, licence=first)
    head = write_card(folder, licence=second).read_text(encoding="utf-8").split("---\n")[1]
    assert ('license_name: "not-stated"' in head) == (stated is None)
    assert f'license: "{stated or "other"}"' in head


@pytest.mark.parametrize(("enough", "shown"), [(10, True), (11, False)])
def test_few_images_are_counted_and_have_no_calibration_error(make_run, monkeypatch, enough, shown):
    """The split holds ten test images."""
    monkeypatch.setattr("anedl.export.card.ECE_IMAGES", enough)
    folder = make_run(own=True)
    last = {"epoch": 4, "validation_error": 0.5, "test": {"error": 0.1, "ece": 0.2}}
    (folder / "results.json").write_text(json.dumps({"anedl": "0.1.0", "last": last}))
    body = write_card(folder).read_text(encoding="utf-8")
    assert ("| expected calibration error | 20.00 % |" in body) == shown
    assert "| test error, known classes, 10 images | 10.00 % |" in body


def test_odd_class_names_stay_text(make_run):
    body = write_card(make_run(own=True, method="supervised")).read_text(encoding="utf-8")
    assert '1. x: "y" \\# z\n' in body
    assert r"2. \-\|\*\[link\](http\://a.b)&lt;b&gt;" in body
    assert "3. naïve ☃" in body
    assert "calls nothing unknown" in body
    assert "own images" in body


def test_names_that_are_escaped_already_stay_as_they_are(make_run):
    """As the intake writes a folder named "new", a line break, "line", and its look-alike."""
    folder = make_run(own=True, method="supervised")
    names = [shown("new\nline"), shown(r"new\x0aline"), "cat", "dog"]
    assert names[:2] == [r"new\x0aline", r"new\x5cx0aline"]
    path = folder / "split.json"
    write_split(replace(read_split(path), known_names=tuple(names)), path)
    (folder / "fit.json").write_text(json.dumps({"summary": [f"{names[0]} is small"]}))
    body = write_card(folder).read_text(encoding="utf-8")
    # Markdown shows an escaped backslash as one.
    assert "\n0. new\\\\x0aline\n1. new\\\\x5cx0aline\n" in body
    assert "- new\\\\x0aline is small\n" in body
    assert code(names[0]) == f"`{names[0]}`"
    assert json.loads(yaml_scalar(names[0])) == names[0]


def test_markdown_is_harmless():
    text = markdown(HOSTILE)
    assert "\n" not in text
    assert "<" not in text
    assert re.search(r"(?<!\\)[`*_\[\]|]", text) is None
    assert markdown("1. first") == r"1\. first"
    assert markdown("- x") == r"\- x"
    assert markdown("    code") == "&#32;" * 4 + "code"
    assert markdown("2) second") == r"2\) second"
    assert markdown("1.5 (of 2)") == "1.5 (of 2)"


@pytest.mark.parametrize(
    ("text", "expected"),
    [("plain", "`plain`"), ("a`b", "`` a`b ``"), ("``", "``` `` ```"), ("", "`  `")],
)
def test_code_spans_hold_backticks(text, expected):
    assert code(text) == expected


@pytest.mark.parametrize("text", ["no", "1.0", "null", "a: b # c", '"', "\\", "~", "ünï ☃ 😀", ""])
def test_yaml_texts_are_quoted(text):
    """A double-quoted scalar of YAML without exotic escapes reads like a string of JSON."""
    assert json.loads(yaml_scalar(text)) == text


def test_yaml_has_no_unprintable_characters():
    scalar = yaml_scalar("a\nb\x00\u2028\udcff\ufeff\U000e0001")
    assert scalar.isprintable()
    assert scalar.isascii()
    # The last is beyond four digits, which JSON does not know.
    assert json.loads(scalar.replace(r"\U000e0001", "")) == "a\\x0ab\\x00\\u2028\\xff\ufeff"


def test_a_name_cannot_add_a_key():
    lines = list(
        yaml({"tags": [HOSTILE], "deep": {"name": HOSTILE}, "many": [{"a": 1, "b": True}]})
    )
    assert [line.split('"')[0] for line in lines] == [
        "tags:", "- ", "deep:", "  name: ", "many:", "- a: 1", "  b: true",
    ]  # fmt: skip


def test_what_is_not_a_run_is_told(tmp_path, make_run):
    with pytest.raises((ConfigError, DataError), match="no such configuration"):
        write_card(tmp_path)
    folder = make_run()
    (folder / "results.json").write_text("{")
    with pytest.raises(DataError, match=r"results\.json"):
        write_card(folder)
    assert not (folder / "README.md").exists()
