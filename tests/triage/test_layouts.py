"""Layouts hold every image once, inside their folder, and leave the sources as they were."""

import errno
import json
import os
import shutil
from pathlib import Path
from urllib.parse import unquote
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anedl.errors import AnedlError, DataError
from anedl.triage.exports import unknown_choice
from anedl.triage.layouts import MARKER, lay_out
from anedl.triage.placing import Names, safe_name

EVIL = (
    "../../x",
    "/etc/passwd",
    "..",
    "a/b\\c",
    "CON",
    "_",
    "Cat",
    "cat",
    "x" * 400,
    "\n\x1b",
    ".",
)


def make_files(folder: Path, names) -> list[Path]:
    """Files whose content says which they are."""
    paths = []
    for number, name in enumerate(names):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"content {number}")
        os.utime(path, (1_000_000_000 + number, 1_000_000_000 + number))
        paths.append(path)
    return paths


def contents(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): path.read_text()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != MARKER
    }


@pytest.fixture
def pile(tmp_path, triage_of):
    """Forty images, in all states; their names repeat in four folders."""
    names = [f"{'abcd'[i % 4]}/{i // 4}.jpg" for i in range(40)]
    return triage_of(names), make_files(tmp_path / "pile", names)


def expected_folder(triage, index):
    state, cluster = triage.state[index], triage.cluster[index]
    if state == "accept":
        return f"accept/{triage.evidence.class_of(index)}"
    if state == "review":
        return "review"
    return f"unknown/cluster-{cluster:02}" if cluster >= 0 else "unknown/no-cluster"


@pytest.mark.parametrize("form", ["folders", "links"])
def test_every_image_is_in_the_folder_of_its_verdict(tmp_path, pile, form):
    triage, paths = pile
    before = contents(tmp_path / "pile")
    layout = lay_out(triage, paths, tmp_path / "out", form)
    assert (layout.placed, layout.already, layout.left_out) == (40, 0, [])
    found = contents(tmp_path / "out")
    assert len(found) == 40
    folder_of_content = {text: Path(name).parent.as_posix() for name, text in found.items()}
    for index in range(40):
        assert folder_of_content[f"content {index}"] == expected_folder(triage, index)
    assert {folder.split("/")[0] for folder in folder_of_content.values()} == {
        "accept", "review", "unknown",
    }  # fmt: skip
    assert contents(tmp_path / "pile") == before
    links = [path.is_symlink() for path in (tmp_path / "out").rglob("*.jpg")]
    assert all(links) if form == "links" else not any(links)


def test_copies_keep_their_date_and_links_lead_to_the_source(tmp_path, triage_of):
    paths = make_files(tmp_path / "pile", ["a.jpg"])
    triage = triage_of(["a.jpg"])
    lay_out(triage, paths, tmp_path / "copies", "folders")
    (copy,) = (tmp_path / "copies").rglob("a.jpg")
    assert copy.stat().st_mtime == 1_000_000_000
    lay_out(triage, paths, tmp_path / "links", "links")
    (link,) = (tmp_path / "links").rglob("a.jpg")
    assert os.readlink(link) == str(paths[0])  # noqa: PTH115 — the text of the link, not a path


def test_links_from_a_relative_path_hold(tmp_path, triage_of, monkeypatch):
    make_files(tmp_path / "pile", ["a.jpg"])
    monkeypatch.chdir(tmp_path)
    lay_out(triage_of(["a.jpg"]), [Path("pile/a.jpg")], Path("out"), "links")
    (link,) = (tmp_path / "out").rglob("a.jpg")
    assert link.read_text() == "content 0"


def test_only_some_states(tmp_path, pile):
    triage, paths = pile
    layout = lay_out(triage, paths, tmp_path / "out", "folders", states=["review"])
    assert layout.placed == triage.counts()["review"] == len(contents(tmp_path / "out"))
    assert {name.split("/")[0] for name in contents(tmp_path / "out")} == {"review"}


def test_hostile_classes_stay_inside(tmp_path, triage_of):
    names = [f"{i}.jpg" for i in range(120)]
    triage = triage_of(names, classes=EVIL)
    paths = make_files(tmp_path / "deep" / "pile", names)
    around = set(tmp_path.rglob("*"))
    out = tmp_path / "deep" / "out"
    lay_out(triage, paths, out, "folders")
    new = set(tmp_path.rglob("*")) - around
    assert all(path == out or out in path.parents for path in new)
    accepted = triage.where("accept")
    classes = {triage.evidence.class_of(i) for i in accepted}
    assert len(classes) > 5
    assert len(list((out / "accept").iterdir())) == len(classes), "each class its own folder"
    assert len(contents(out)) == 120


def test_hostile_file_names_stay_apart(tmp_path, triage_of):
    """Names that some system takes for the same, or for none, all arrive."""
    raw = [b"new\nline.jpg", b'qu"ote.jpg', b"\xff\xfe.jpg", b"\xff_.jpg", b"A.jpg", b"a.jpg",
           "é.jpg".encode(), "e\u0301.jpg".encode(), b"CON.jpg", b"x:y.jpg", b"x_y.jpg",
           b" lead.jpg", b"n" * 240 + b".jpg"]  # fmt: skip
    names = [os.fsdecode(name) for name in raw]
    paths = make_files(tmp_path / "pile", names)
    triage = triage_of([f"{i}" for i in range(len(raw))])
    layout = lay_out(triage, paths, tmp_path / "out", "folders")
    assert layout.placed == len(raw)
    found = contents(tmp_path / "out")
    assert sorted(found.values()) == sorted(f"content {i}" for i in range(len(raw)))
    assert all(name.isprintable() and name.endswith(".jpg") for name in found)


@given(st.lists(st.text(max_size=30), max_size=20))
def test_names_of_one_folder_are_safe_and_distinct(wanted):
    names = Names()
    given_out = [names.unused(name) for name in wanted]
    assert len({name.casefold() for name in given_out}) == len(wanted)
    for name in given_out:
        assert Path("/x", name).resolve() == Path("/x") / name
        assert name.isprintable()
        assert "/" not in name
        assert not name.startswith((".", " "))
        assert len(name.encode()) <= 255


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("cat", "cat"), ("../../x", "_.._x"), ("..", "_"), ("", "_"), ("a/b", "a_b"),
        ("nul.jpg", "_nul.jpg"), ("Käse 日本.jpg", "Käse 日本.jpg"), ("v1.5 red", "v1.5 red"),
        (".hidden", "hidden"), ("end. ", "end"),
    ],
)  # fmt: skip
def test_safe_names(text, name):
    assert safe_name(text) == name


def test_very_long_names_keep_their_suffix():
    assert safe_name("日" * 300 + ".jpeg").endswith("日.jpeg")
    assert len(safe_name("日" * 300 + ".jpeg").encode()) <= 200


@pytest.mark.parametrize("form", ["folders", "links"])
def test_an_interrupted_layout_goes_on(tmp_path, pile, form):
    triage, paths = pile
    out = tmp_path / "out"

    def stop(done, total):
        assert total == 40
        if done == 15:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        lay_out(triage, paths, out, form, progress=stop)
    assert len(contents(out)) == 15
    layout = lay_out(triage, paths, out, form)
    assert (layout.placed, layout.already) == (25, 15)
    whole = contents(out)
    again = lay_out(triage, paths, out, form)
    assert (again.placed, again.already) == (0, 40)
    assert contents(out) == whole


def test_nothing_is_replaced(tmp_path, pile):
    triage, paths = pile
    out = tmp_path / "out"
    lay_out(triage, paths, out, "folders")
    changed = next(out.rglob("*.jpg"))
    changed.write_text("rotated by hand")
    lay_out(triage, paths, out, "folders")
    assert changed.read_text() == "rotated by hand"


@pytest.mark.parametrize("form", ["folders", "links", "label-studio", "fiftyone"])
def test_a_folder_with_something_else_is_refused(tmp_path, pile, form):
    triage, paths = pile
    out = tmp_path / "out"
    out.mkdir()
    (out / "thesis.tex").write_text("mine")
    with pytest.raises(DataError, match="not an empty folder"):
        lay_out(triage, paths, out, form)
    assert contents(out) == {"thesis.tex": "mine"}
    with pytest.raises(DataError, match="not an empty folder"):
        lay_out(triage, paths, out / "thesis.tex", form)
    assert os.listdir(out) == ["thesis.tex"]  # noqa: PTH208 — names are enough


def test_another_layout_is_refused(tmp_path, pile, triage_of):
    triage, paths = pile
    lay_out(triage, paths, tmp_path / "out", "folders")
    other = triage_of(list(triage.evidence.names), seed=1)
    for verdicts, form in ((triage, "links"), (other, "folders"), (triage, "fiftyone")):
        with pytest.raises(DataError, match="another layout"):
            lay_out(verdicts, paths, tmp_path / "out", form)
    assert len(contents(tmp_path / "out")) == 40


def test_a_planted_link_does_not_lead_out(tmp_path, pile):
    triage, paths = pile
    out = tmp_path / "out"
    lay_out(triage, paths, out, "folders")
    shutil.rmtree(out / "review")
    (tmp_path / "elsewhere").mkdir()
    (out / "review").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DataError, match="leads out of the layout"):
        lay_out(triage, paths, out, "folders")
    assert not any((tmp_path / "elsewhere").iterdir())


@pytest.mark.parametrize("form", ["folders", "links"])
def test_files_that_are_gone_are_left_out_with_the_reason(tmp_path, pile, form):
    triage, paths = pile
    paths[3].unlink()
    paths[4].unlink()
    os.mkfifo(paths[4])
    layout = lay_out(triage, paths, tmp_path / "out", form)
    assert layout.placed == 38
    assert [name for name, _ in layout.left_out] == [triage.evidence.names[i] for i in (3, 4)]
    assert len(contents(tmp_path / "out")) == 38


def test_a_full_disk_stops_at_once(tmp_path, pile, monkeypatch):
    triage, paths = pile

    def full(source, target):
        Path(target).write_text("half")
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "copyfile", full)
        with pytest.raises(OSError, match="No space"):
            lay_out(triage, paths, tmp_path / "out", "folders")
    assert contents(tmp_path / "out") == {}, "no half a copy"
    assert lay_out(triage, paths, tmp_path / "out", "folders").placed == 40


def test_label_studio_tasks(tmp_path, pile):
    triage, paths = pile
    root = tmp_path.resolve()
    layout = lay_out(
        triage, paths, tmp_path / "out", "label-studio", document_root=root,
        url_prefix="http://host/data/local-files/?d=",
    )  # fmt: skip
    assert layout.placed == 40
    tasks = json.loads((tmp_path / "out" / "tasks.json").read_text())
    interface = ElementTree.parse(tmp_path / "out" / "interface.xml").getroot()
    choices, image = interface.find("Choices"), interface.find("Image")
    offered = [choice.get("value") for choice in choices]
    assert offered == ["cat", "dog", "fox", "unknown"]
    assert choices.get("toName") == image.get("name")
    assert image.get("value") == "$image"
    for index, task in enumerate(tasks):
        prefix, path = task["data"]["image"].split("?d=")
        assert prefix == "http://host/data/local-files/"
        assert (root / unquote(path)).read_text() == f"content {index}"
        assert task["data"]["state"] == triage.state[index]
        assert task["data"]["reason"] == triage.reason[index]
        (prediction,) = task["predictions"]
        (result,) = prediction["result"]
        assert result["type"] == "choices"
        assert result["from_name"] == choices.get("name")
        assert result["to_name"] == image.get("name")
        is_unknown = triage.state[index] == "unknown"
        expected = "unknown" if is_unknown else triage.evidence.class_of(index)
        assert result["value"] == {"choices": [expected]}
        assert 0 <= prediction["score"] <= 1
    identifiers = [task["predictions"][0]["result"][0]["id"] for task in tasks]
    assert len(set(identifiers)) == 40


def test_label_studio_escapes_and_leaves_out(tmp_path, triage_of):
    names = ["a b&c?#%.jpg", "new\nline.jpg", os.fsdecode(b"\xff.jpg")]
    paths = [*make_files(tmp_path / "pile", names), tmp_path.parent / "outside.jpg"]
    triage = triage_of(["0", "1", "2", "3"], classes=('<"a&', "unknown", "(unknown)"))
    layout = lay_out(triage, paths, tmp_path / "out", "label-studio", document_root=tmp_path)
    assert [name for name, _ in layout.left_out] == ["2", "3"]
    tasks = json.loads((tmp_path / "out" / "tasks.json").read_text())
    for task, name in zip(tasks, names, strict=False):
        url = task["data"]["image"]
        assert not set(url.split("?d=")[1]) & set(" &?#\n")
        assert unquote(url).endswith(f"pile/{name}")
    interface = ElementTree.parse(tmp_path / "out" / "interface.xml").getroot()
    assert [choice.get("value") for choice in interface.find("Choices")] == [
        '<"a&', "unknown", "(unknown)", "((unknown))",
    ]  # fmt: skip


def test_fiftyone_files(tmp_path, pile):
    """Both files speak of the same keys, targets index the classes, paths are there."""
    triage, paths = pile
    lay_out(triage, paths, tmp_path / "out", "fiftyone")
    labels = json.loads((tmp_path / "out" / "labels.json").read_text())
    data = json.loads((tmp_path / "out" / "data.json").read_text())
    assert labels["classes"] == ["cat", "dog", "fox", "unknown"]
    assert list(labels["labels"]) == list(data)
    assert not any("." in key for key in data)
    for index, (key, path) in enumerate(data.items()):
        assert Path(path).is_absolute()
        assert Path(path).read_text() == f"content {index}"
        target = labels["labels"][key]
        is_unknown = triage.state[index] == "unknown"
        name = labels["classes"][target["label"]]
        assert name == ("unknown" if is_unknown else triage.evidence.class_of(index))
        assert ("confidence" in target) == (not is_unknown)
        assert target["attributes"]["state"] == triage.state[index]
        assert target["attributes"]["file"] == triage.evidence.names[index]
        assert "aleatoric" not in target["attributes"], "a measure that is not there"


def test_label_studio_takes_a_dollar_in_a_class_for_one(tmp_path, triage_of):
    """It would put the task's data in its place; the alias is what a prediction must name."""
    paths = make_files(tmp_path / "pile", ["0.png", "1.png"])
    triage = triage_of(["0", "1"], classes=("5 $file", "dog", "fox"))
    lay_out(triage, paths, tmp_path / "out", "label-studio")
    interface = ElementTree.parse(tmp_path / "out" / "interface.xml").getroot()
    first, second, *_ = interface.find("Choices")
    assert "$" not in first.get("value")
    assert first.get("alias") == "5 $file"
    assert (second.get("value"), second.get("alias")) == ("dog", None)
    assert [part.tag for part in interface] == ["Text", "Choices", "Image"]


def test_fiftyone_gets_no_file_that_would_end_its_import(tmp_path, triage_of):
    names = ["a.png", "NO_SUFFIX", "b.webp", "c.dng", "d\\e.jpg", "F.JPG"]
    paths = make_files(tmp_path / "pile", names)
    triage = triage_of([str(n) for n in range(6)])
    layout = lay_out(triage, paths, tmp_path / "out", "fiftyone")
    reasons = dict(layout.left_out)
    assert sorted(reasons) == ["1", "3", "4"]
    assert "not take for an image's" in reasons["1"]
    assert "backslash" in reasons["4"]
    data = json.loads((tmp_path / "out" / "data.json").read_text())
    assert [Path(path).name for path in data.values()] == ["a.png", "b.webp", "F.JPG"]


def test_a_wrong_document_root_leaves_the_tasks_as_they_were(tmp_path, pile):
    triage, paths = pile
    lay_out(triage, paths, tmp_path / "out", "label-studio")
    before = (tmp_path / "out" / "tasks.json").read_text()
    with pytest.raises(DataError, match="none of the 40 images can be laid out"):
        lay_out(triage, paths, tmp_path / "out", "label-studio", document_root=tmp_path / "no")
    assert (tmp_path / "out" / "tasks.json").read_text() == before


@pytest.mark.parametrize("form", ["label-studio", "fiftyone"])
def test_exports_are_written_anew(tmp_path, pile, triage_of, form):
    triage, paths = pile
    lay_out(triage, paths, tmp_path / "out", form)
    before = contents(tmp_path / "out")
    lay_out(triage_of(list(triage.evidence.names), seed=1), paths, tmp_path / "out", form)
    assert contents(tmp_path / "out").keys() == before.keys()
    assert contents(tmp_path / "out") != before


def test_unknown_is_never_a_class():
    assert unknown_choice(["cat"]) == "unknown"
    assert unknown_choice(["unknown", "(unknown)"]) == "((unknown))"


def test_wrong_use_is_refused(tmp_path, pile):
    triage, paths = pile
    with pytest.raises(AnedlError, match="did you mean folders"):
        lay_out(triage, paths, tmp_path / "out", "folder")
    with pytest.raises(DataError, match="40 images need a path each"):
        lay_out(triage, paths[:-1], tmp_path / "out", "folders")
    assert not (tmp_path / "out").exists()
