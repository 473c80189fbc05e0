import os
import sys
import unicodedata

import pytest
from PIL import Image

from anedl.errors import DataError
from anedl.intake.listing import (
    Item,
    Skipped,
    list_labelled,
    list_pile,
    require_some_there,
)


def put(root, *names):
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix in (".png", ".jpg"):
            Image.new("RGB", (8, 8), "red").save(path)
        else:
            path.write_text("text")


def pairs(listing):
    return [(item.label, item.name) for item in listing.items]


def test_class_folders(tmp_path):
    put(tmp_path, "cat/2.png", "cat/10.png", "ant/x/1.jpg", "ant/notes.txt", "loose.png")
    put(tmp_path, ".git/x.png")
    listing = list_labelled(tmp_path)
    assert pairs(listing) == [("ant", "ant/x/1.jpg"), ("cat", "cat/10.png"), ("cat", "cat/2.png")]
    assert listing.items[0].path == tmp_path / "ant/x/1.jpg"
    assert listing.skipped == [
        Skipped(".git", "it is hidden (its name says so)", labelled=True),
        Skipped("ant/notes.txt", "not an image by its name, nor by its content", labelled=True),
        Skipped("loose.png", "it lies outside the class folders", labelled=True),
    ]


def test_one_class_for_two_unicode_forms_of_its_name(tmp_path):
    put(tmp_path, f"{unicodedata.normalize('NFD', 'café')}/1.png", "café/2.png")
    listing = list_labelled(tmp_path)
    assert [item.label for item in listing.items] == ["café", "café"]
    assert len({item.name for item in listing.items}) == 2


def test_a_class_folder_may_be_a_link(tmp_path):
    put(tmp_path, "elsewhere/1.png", "labelled/dog/1.png")
    (tmp_path / "labelled/cat").symlink_to(tmp_path / "elsewhere")
    assert pairs(list_labelled(tmp_path / "labelled")) == [
        ("cat", "cat/1.png"),
        ("dog", "dog/1.png"),
    ]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["1.png"], "no class folders; put the images of each class"),
        (["cat/1.png", "dog/notes.txt"], "dog: the class folder holds no images; add some or"),
        (["cat/1.png", "dog/notes.txt", "eel/a.md"], "dog, .*eel: these class folders hold no"),
        (["train/cat/1.png", "test/cat/1.png"], r"its folders \(test, train\) are parts"),
    ],
)
def test_folders_that_are_no_classes(tmp_path, names, message):
    put(tmp_path, *names)
    with pytest.raises(DataError, match=message):
        list_labelled(tmp_path)


def test_labelled_csv(tmp_path):
    text = '\ufeffid,Path , LABEL\n1,"a,b.png",dog\n2,sub/x.png,cat\n\n3,sub/x.png,cat\n'
    (tmp_path / "m.csv").write_text(text, encoding="utf-8")
    listing = list_labelled(tmp_path / "m.csv")
    assert listing.items == [
        Item(tmp_path / "sub/x.png", "sub/x.png", "cat"),
        Item(tmp_path / "a,b.png", "a,b.png", "dog"),
    ]
    reason = "it is listed twice (line 3 and line 5) and used once"
    assert listing.skipped == [Skipped("sub/x.png", reason, labelled=True)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("file,label\na.png,cat\n", r"m\.csv, line 1: no column 'path'; found file, label"),
        ("path\na.png\n", r"m\.csv, line 1: no column 'label'; found path, needed path and label"),
        ("", r"m\.csv, line 1: no column 'path'; found nothing"),
        ("path,label\na.png,cat\nb.png,\n", r"m\.csv, line 3, column 'label': empty"),
        ("path,label\na.png,cat\nb.png\n", r"m\.csv, line 3, column 'label': empty"),
        ("path,label\n ,cat\n", r"m\.csv, line 2, column 'path': empty"),
        ("path,label\na.png,cat\na.png,dog\n", r"line 3, column 'label': a\.png is 'dog' here but"),
        ('path,label\n"a.png,cat\n', r"m\.csv, line 2: not well-formed CSV"),
        ("path,path,label\n", "more than one column 'path'"),
    ],
)
def test_wrong_csv_is_named_by_line_and_column(tmp_path, text, message):
    (tmp_path / "m.csv").write_text(text)
    with pytest.raises(DataError, match=message):
        list_labelled(tmp_path / "m.csv")


@pytest.mark.parametrize(
    "text",
    [
        "label, path\ncat, sub/x.png\ndog, sub/y.png\n",
        "label,path\ncat, sub/x.png\ndog,sub/y.png \n",
        'label, path\ncat, "sub/x.png"\ndog, "sub/y.png"\n',
        "path;label\nsub/x.png;cat\nsub/y.png;dog\n",
        "Path;note;LABEL\nsub/x.png;a, b;cat\nsub/y.png;;dog\n",
        "path\tlabel\nsub/x.png\tcat\nsub/y.png\tdog\n",
    ],
)
@pytest.mark.parametrize("name", ["m.csv", "m.tsv"])
def test_spaces_and_separators_are_those_of_the_header(tmp_path, text, name):
    put(tmp_path, "sub/x.png", "sub/y.png")
    (tmp_path / name).write_text(text)
    listing = list_labelled(tmp_path / name)
    assert pairs(listing) == [("cat", "sub/x.png"), ("dog", "sub/y.png")]
    assert all(item.path.exists() for item in listing.items)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("path,label\na.png,dog\nb.png,café\n", r"m\.csv, line 3: caf\\xe9 is not UTF-8; save"),
        ("path;label\ncafé/b.png;cat\n", r"m\.csv, line 2: caf\\xe9/b\.png is not UTF-8; save"),
        ("größe,datei\n1,a.png\n", r"m\.csv, line 1: gr\\xf6\\xdfe,datei is not UTF-8; save"),
    ],
)
def test_another_encoding_is_refused_by_line(tmp_path, text, told):
    """A class called caf\\xe9 is nobody's wish."""
    put(tmp_path, "a.png", "b.png")
    (tmp_path / "m.csv").write_text(text, encoding="cp1252")
    with pytest.raises(DataError, match=told):
        list_labelled(tmp_path / "m.csv")


def test_a_file_whose_name_is_not_utf8_may_be_listed(tmp_path):
    name = os.fsdecode(b"caf\xe9.png")
    put(tmp_path, name)
    (tmp_path / "m.csv").write_bytes(b"note,path,label\nbl\xf6d,caf\xe9.png,cat\n")
    assert pairs(list_labelled(tmp_path / "m.csv")) == [("cat", r"caf\xe9.png")]


def test_spaces_that_belong_to_a_name_are_kept(tmp_path):
    put(tmp_path, " x.png", "y.png", "z .png")
    (tmp_path / "m.csv").write_text("label,path\ncat, x.png\ncat, y.png\ncat,z .png\n")
    assert [item.name for item in list_labelled(tmp_path / "m.csv").items] == [
        " x.png", "y.png", "z .png",
    ]  # fmt: skip
    (tmp_path / "list.txt").write_text(" x.png\n y.png \n")
    assert [item.name for item in list_pile(tmp_path / "list.txt").items] == [" x.png", "y.png"]


def test_a_list_of_which_nothing_is_there_is_refused_with_the_reason(tmp_path, monkeypatch):
    put(tmp_path, "photos/a.png", "photos/b.png")
    source = tmp_path / "lists" / "x.txt"
    source.parent.mkdir()
    source.write_text("photos/a.png\nphotos/b.png\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match="none of its 2 files is there") as refusal:
        require_some_there(source, list_pile(source))
    told = str(refusal.value)
    assert str(tmp_path / "lists/photos/a.png") in told
    assert "taken from the folder of the list; these are relative to the working folder" in told
    assert "absolute" in told
    monkeypatch.chdir(tmp_path / "lists")
    with pytest.raises(DataError, match="taken from the folder of the list: put"):
        require_some_there(source, list_pile(source))
    # One that is there will do, and so will a folder, whatever is in it.
    source.write_text(f"photos/a.png\n{tmp_path}/photos/b.png\n")
    require_some_there(source, list_pile(source))
    require_some_there(tmp_path / "photos", list_pile(tmp_path / "photos"))


def test_parquet_columns_may_be_written_with_capitals(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = arrow.table({"Label": ["cat", "dog"], "Path": ["b.png", "a.png"]})
    parquet.write_table(table, tmp_path / "m.parquet")
    listing = list_labelled(tmp_path / "m.parquet")
    assert pairs(listing) == [("cat", "b.png"), ("dog", "a.png")]
    assert [item.name for item in list_pile(tmp_path / "m.parquet").items] == ["b.png", "a.png"]
    twice = arrow.table({"path": ["a"], "Path": ["b"], "label": ["cat"]})
    parquet.write_table(twice, tmp_path / "twice.parquet")
    with pytest.raises(DataError, match="more than one column 'path'"):
        list_labelled(tmp_path / "twice.parquet")


def test_parquet_manifest(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = arrow.table({"path": ["b.png", "a.png"], "label": [7, 3], "more": [None, None]})
    parquet.write_table(table, tmp_path / "m.parquet")
    listing = list_labelled(tmp_path / "m.parquet")
    assert pairs(listing) == [("3", "a.png"), ("7", "b.png")]
    assert [item.name for item in list_pile(tmp_path / "m.parquet").items] == ["b.png", "a.png"]

    raw = arrow.table({"path": arrow.array([b"caf\xe9.png", None])})
    parquet.write_table(raw, tmp_path / "raw.parquet")
    pile = list_pile(tmp_path / "raw.parquet")
    assert [item.name for item in pile.items] == [r"caf\xe9.png"]
    assert pile.skipped == [Skipped("(row 2)", "the row names no file")]
    with pytest.raises(DataError, match=r"raw\.parquet, the schema: no column 'label'"):
        list_labelled(tmp_path / "raw.parquet")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 and then nothing")
    with pytest.raises(DataError, match=r"broken\.parquet: not a readable Parquet file"):
        list_pile(tmp_path / "broken.parquet")


def test_parquet_without_pyarrow_names_the_remedy(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    (tmp_path / "m.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match=r'pip install "anedl\[fit\]"'):
        list_pile(tmp_path / "m.parquet")


def test_pile_tree_in_one_order(tmp_path):
    put(tmp_path, "b/1.png", "a.png", "b.png", "b/a/2.jpg", "readme.md")
    (tmp_path / "image without ending").write_bytes((tmp_path / "a.png").read_bytes())
    listing = list_pile(tmp_path)
    names = [item.name for item in listing.items]
    assert names == ["a.png", "b.png", "b/1.png", "b/a/2.jpg", "image without ending"]
    assert all(item.label is None for item in listing.items)
    assert [entry.name for entry in listing.skipped] == ["readme.md"]


def test_pile_as_a_list(tmp_path):
    (tmp_path / "list.txt").write_bytes(b'b.png\r\n\na,"b.png\n/abs/caf\xe9.png\nb.png\n')
    listing = list_pile(tmp_path / "list.txt")
    assert [item.name for item in listing.items] == ["b.png", 'a,"b.png', r"/abs/caf\xe9.png"]
    assert listing.items[0].path == tmp_path / "b.png"
    assert str(listing.items[2].path) == "/abs/caf\udce9.png"
    assert [entry.name for entry in listing.skipped] == ["b.png"]

    (tmp_path / "list0").write_bytes(b"two\nlines.png\0b.png\0")
    assert [item.name for item in list_pile(tmp_path / "list0").items] == [
        r"two\x0alines.png",
        "b.png",
    ]


def test_items_stay_right_when_the_working_folder_changes(tmp_path, monkeypatch):
    put(tmp_path, "pile/a.png")
    monkeypatch.chdir(tmp_path)
    from pathlib import Path

    assert list_pile(Path("pile")).items[0].path == tmp_path / "pile/a.png"


@pytest.mark.parametrize("read", [list_labelled, list_pile])
def test_sources_that_cannot_be(tmp_path, read):
    with pytest.raises(DataError, match="no such file or folder"):
        read(tmp_path / "gone")
    put(tmp_path, "one.png")
    with pytest.raises(DataError, match=r"one\.png: a single image"):
        read(tmp_path / "one.png")


def test_labels_need_a_table(tmp_path):
    (tmp_path / "list.txt").write_text("a.png\n")
    with pytest.raises(DataError, match="CSV or Parquet file with columns path and label"):
        list_labelled(tmp_path / "list.txt")
