"""What the documents show is run, so that it stays true."""

import importlib.util
import json
import re
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import anedl
from anedl.cli.methods import options_table
from anedl.data.dataset import ArrayImages, Dataset, LabelledImages
from anedl.errors import ConfigError
from anedl.fit.flow import Wishes, fit
from anedl.methods.anedl_config import RELEASED
from anedl.methods.catalogue import METHODS, PLUS, name_of
from anedl.presets.folders import digits_folders, read_truth

DOCS = Path(__file__).parents[2] / "docs"
EXAMPLE = DOCS / "examples" / "pseudo_label.py"
ONE_EQUATION = DOCS / "examples" / "one_equation.py"


def test_the_worked_example_is_short_and_trains(tmp_path):
    assert len(EXAMPLE.read_text().splitlines()) < 60
    run = anedl.train(
        "digits", method=f"{EXAMPLE}:PseudoLabel", out=tmp_path / "run", threshold=0.8,
        epochs=6, epoch_steps=20, pretrain_epochs=2, learning_rate=0.1,
    )  # fmt: skip
    assert run.test.error < 0.6  # chance is 0.83
    assert "pseudo" in (run.folder / "metrics.jsonl").read_text()


def test_the_example_of_one_equation_changes_that_one(tmp_path):
    short = {"epochs": 2, "epoch_steps": 4, "pretrain_epochs": 1, "log_every": 1}
    how = {**short, "consistency_from": "start"}
    method = f"{ONE_EQUATION}:Means"
    plain, means, twice = (
        anedl.train("digits", name, out=tmp_path / str(number), **how, **options)
        for number, (name, options) in enumerate(
            [("anedl-plus", {}), (method, {}), (method, {"means_weight": 2.0})]
        )
    )
    first = [
        json.loads((run.folder / "metrics.jsonl").read_text().splitlines()[0])["train"]
        for run in (plain, means, twice)
    ]
    for name, value in first[0].items():
        if name not in ("consistency", "gradient_norm"):
            assert first[1][name] == first[2][name] == value
    assert first[1]["consistency"] != first[0]["consistency"]
    assert first[2]["consistency"] == pytest.approx(2 * first[1]["consistency"])


def test_a_class_that_a_file_holds_is_a_method_like_its_name(tmp_path):
    spec = importlib.util.spec_from_file_location("of_a_user", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    sys.modules["of_a_user"] = module  # as an import would; dataclasses look there
    spec.loader.exec_module(module)
    run = anedl.train(
        "digits", module.PseudoLabel, out=tmp_path, epochs=2, epoch_steps=2, pretrain_epochs=1
    )
    assert run.results["method"] == f"{EXAMPLE}:PseudoLabel"
    for place in ("nowhere", "__main__"):
        homeless = type("Homeless", (module.PseudoLabel,), {"__module__": place})
        with pytest.raises(ConfigError, match="Homeless'"):
            anedl.train("digits", homeless)


def test_a_class_of_the_package_is_the_method_of_its_name():
    assert name_of(METHODS["ssb"].method) == "ssb"
    with pytest.raises(ConfigError, match="'anedl', 'anedl-released', 'anedl-plus'"):
        name_of(METHODS["anedl"].method)


def test_a_file_without_the_class_is_refused():
    with pytest.raises(ConfigError, match="no such subclass"):
        anedl.train("digits", method=f"{EXAMPLE}:Missing")


def test_a_missing_file_is_refused():
    with pytest.raises(ConfigError, match="no such file"):
        anedl.train("digits", method="nowhere.py:Method")


def test_the_page_of_options_is_up_to_date():
    page = (DOCS / "options.md").read_text()
    assert options_table(METHODS["anedl"]) in page
    ours = {name: value for name, value in PLUS.items() if value != RELEASED.get(name)}
    for name, value in [*RELEASED.items(), *ours.items()]:
        assert f"| `--{name.replace('_', '-')}` | `{value}` |" in page


def test_links_between_documents_lead_somewhere():
    for page in [*DOCS.glob("*.md"), DOCS.parent / "README.md", DOCS.parent / "CONTRIBUTING.md"]:
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_example_of_cifar_folders_writes_fits_and_judges(tmp_path, monkeypatch, capsys):
    """As docs/fit.md shows it, with made-up images in the place of CIFAR-100."""
    spec = importlib.util.spec_from_file_location(
        "cifar_folders", DOCS / "examples/cifar_folders.py"
    )
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(5), 60)
    # A class is a colour, so that a few steps tell them apart.
    colours = np.array(
        [[200, 30, 30], [30, 200, 30], [30, 30, 200], [200, 200, 30], [30, 200, 200]]
    )
    pixels = colours[labels][:, None, None] + rng.integers(-30, 30, (300, 8, 8, 3))
    images = LabelledImages(ArrayImages(pixels.astype(np.uint8)), labels)
    dataset = Dataset("cifar100", ("a", "b", "c", "d", "e"), images, images)
    monkeypatch.setattr(example, "load_dataset", lambda name, root: dataset)

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["cifar_folders.py", str(tmp_path / "it"), *words])
        example.main()
        return capsys.readouterr().out

    call("--known", "3", "--labels", "40", "--pile", "80", "--strangers", "0.5")
    folders = digits_folders(tmp_path / "it")
    truth = read_truth(folders.truth)
    known = {path.name for path in folders.labelled.iterdir()}
    assert len(known) == 3
    assert all(len(list((folders.labelled / name).iterdir())) == 40 for name in known)
    assert sorted(path.name for path in folders.pile.iterdir()) == sorted(truth)
    assert Counter(answer in known for answer in truth.values()) == {True: 40, False: 40}
    labelled = {path.stem for path in folders.labelled.rglob("*.png")}
    assert not labelled & {str(int(name.removesuffix(".png"))) for name in truth}

    wishes = Wishes(
        device="cpu", quiet=True, epochs=3, epoch_steps=5, folds=0, backbone="wrn-digits"
    )
    fit(folders.labelled, folders.pile, tmp_path / "run", wishes, lambda text: None)
    said = call("--judge", str(tmp_path / "run"))
    assert "strangers in the pile  50 % (40 of 80" in said
