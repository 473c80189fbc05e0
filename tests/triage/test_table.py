"""The table holds exactly what it was given, and nothing in it is a formula."""

import csv
import json
import sys
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anedl.errors import DataError
from anedl.triage.table import (
    COLUMNS,
    TEXT_COLUMNS,
    is_edited,
    read_parquet,
    read_table,
    shielded,
    unshielded,
    write_table,
)
from anedl.triage.verdict import judge

# Every character a file can be named by, as intake shows it: all but NUL and lone surrogates.
NAMES = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=20
)
HOSTILE = [
    "=cmd|'/C calc'!A0.jpg", "+1.jpg", "-1.jpg", "@SUM(A1).jpg", "'=1.jpg", "''x", "'",
    'quo"te,comma;.jpg', "new\nline.jpg", "\r=1", "\t=1", "ret\rurn", "\r\n", " lead", "trail ",
    "b\\xff.jpg", "ünï/日本.jpg", "＝1", "\u2028", "NULL", "nan", "1e5", "a\x1b[0m", "\ufefffile",
]  # fmt: skip


def assert_same(first, second):
    assert first.state == second.state
    assert first.reason == second.reason
    assert first.rules == second.rules
    np.testing.assert_array_equal(first.cluster, second.cluster)
    for field in fields(first.evidence):
        before, after = (getattr(triage.evidence, field.name) for triage in (first, second))
        if isinstance(before, np.ndarray):
            np.testing.assert_array_equal(before, after, err_msg=field.name)
        else:
            assert before == after, field.name


@pytest.mark.parametrize("read", [read_table, read_parquet])
def test_hostile_names_survive_exactly(tmp_path, triage_of, read):
    triage = triage_of(HOSTILE, classes=("=cat", "do\ng'", "-", "'"))
    paths = write_table(tmp_path, triage)
    assert {path.name for path in paths} == {"triage.csv", "triage.json", "triage.parquet"}
    assert_same(triage, read(tmp_path))


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    names=st.lists(NAMES, max_size=6), classes=st.lists(NAMES, min_size=1, max_size=4, unique=True)
)
def test_any_names_survive_exactly(tmp_path, triage_of, names, classes):
    triage = triage_of(names, classes=classes)
    write_table(tmp_path, triage)
    assert_same(triage, read_table(tmp_path))
    assert_same(triage, read_parquet(tmp_path))


@given(NAMES | st.just(""))
def test_a_shield_is_reversible_and_stops_formulas(text):
    cell = shielded(text)
    assert unshielded(cell) == text
    assert not cell.startswith(("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠"))


def test_no_text_cell_opens_as_a_formula(tmp_path, triage_of):
    write_table(tmp_path, triage_of(HOSTILE, classes=("=cat", "+dog", "@fox")))
    with (tmp_path / "triage.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(HOSTILE)
    for row in rows:
        for column, cell in row.items():
            if cell.startswith(("=", "+", "-", "@")):
                float(cell)  # a number, which a spreadsheet may well read
                assert column == "inlier_score"


def test_columns_and_absent_values(tmp_path, triage_of):
    write_table(tmp_path, triage_of([f"{i}.jpg" for i in range(12)]))
    with (tmp_path / "triage.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == COLUMNS
    assert {row["aleatoric"] for row in rows} == {""}
    assert {row["duplicate_group"] for row in rows} == {"", "5"}
    assert rows[3]["labelled_duplicate"] == "'=labelled'.jpg"


def test_the_verdict_can_be_given_again_from_the_table(tmp_path, triage_of):
    """What is written is all that the rules look at."""
    triage = triage_of([f"{i}.jpg" for i in range(60)])
    write_table(tmp_path, triage)
    again = judge(read_table(tmp_path).evidence, triage.rules)
    assert (again.state, again.reason) == (triage.state, triage.reason)


def test_a_state_changed_by_hand_in_a_spreadsheet_counts(tmp_path, triage_of):
    write_table(tmp_path, triage_of([f"{i}.jpg" for i in range(12)]))
    path = tmp_path / "triage.csv"
    rows = list(csv.reader(path.read_text(encoding="utf-8").splitlines()))
    rows[1][1] = "review" if rows[1][1] == "unknown" else "unknown"
    with path.open("w", newline="", encoding="utf-8-sig") as file:
        csv.writer(file).writerows(rows)
    assert read_table(tmp_path).state[0] == rows[1][1]


def saved_by_a_spreadsheet(path, encoding="utf-8", decimals=".", **habits):
    """Write the table again as a spreadsheet of another country would."""
    rows = list(csv.reader(path.read_text(encoding="utf-8").splitlines()))
    numbers = [i for i, name in enumerate(COLUMNS) if name not in TEXT_COLUMNS]
    for row in rows[1:]:
        for i in numbers:
            row[i] = row[i].replace(".", decimals)
    with path.open("w", newline="", encoding=encoding) as file:
        csv.writer(file, **habits).writerows(rows)


@pytest.mark.parametrize("decimals", [".", ","])
@pytest.mark.parametrize("separator", [";", "\t"])
def test_a_table_saved_with_other_separators_holds_the_same(
    tmp_path, triage_of, separator, decimals
):
    triage = triage_of([f"{i}; x.jpg" for i in range(12)], classes=("a;b", "c,d", "é"))
    write_table(tmp_path, triage)
    path = tmp_path / "triage.csv"
    saved_by_a_spreadsheet(path, "utf-8-sig", decimals, delimiter=separator)
    assert_same(triage, read_table(tmp_path))


def test_a_table_saved_in_another_encoding_is_refused_by_line(tmp_path, triage_of):
    write_table(tmp_path, triage_of(["a.jpg", "café.jpg"]))
    saved_by_a_spreadsheet(tmp_path / "triage.csv", "cp1252", delimiter=";")
    with pytest.raises(DataError, match=r"triage\.csv, line 3: caf\\xe9\.jpg is not UTF-8; save"):
        read_table(tmp_path)


def test_what_was_changed_by_hand_is_kept_when_the_table_is_written_anew(tmp_path, triage_of):
    names = [f"{i}.jpg" for i in range(12)]
    path, said = tmp_path / "triage.csv", []
    for number in range(3):
        write_table(tmp_path, triage_of(names, seed=number), said.append)
    assert said == []
    assert not is_edited(tmp_path)
    for number, kept in enumerate(["triage.edited.csv", "triage.edited-2.csv"]):
        edited = path.read_bytes().replace(b"review", b"accept", 1)
        path.write_bytes(edited)
        assert is_edited(tmp_path)
        new = triage_of(names, seed=number)
        write_table(tmp_path, new, said.append)
        assert (tmp_path / kept).read_bytes() == edited
        assert said.pop() == (
            f"{path} was changed by hand; it is kept as {kept}, and a new table takes its place"
        )
        assert_same(new, read_table(tmp_path))
        assert not is_edited(tmp_path)
    assert len(list(tmp_path.glob("triage.edited*"))) == 2


def test_of_a_table_without_a_record_nothing_is_lost(tmp_path, triage_of):
    """Nobody can tell whether it was changed, unless it is what is written now."""
    triage, said = triage_of(["a.jpg", "b.jpg"]), []
    write_table(tmp_path, triage)
    document = json.loads((tmp_path / "triage.json").read_text())
    del document["table"]
    (tmp_path / "triage.json").write_text(json.dumps(document))
    assert not is_edited(tmp_path)
    write_table(tmp_path, triage, said.append)
    assert said == []
    (tmp_path / "triage.json").unlink()
    before = (tmp_path / "triage.csv").read_bytes()
    write_table(tmp_path, triage_of(["a.jpg", "b.jpg"], seed=1), said.append)
    assert (tmp_path / "triage.edited.csv").read_bytes() == before
    assert "may have been changed by hand" in said[0]


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        (1, "maybe", "line 2, column state: 'maybe'"),
        (3, "often", "line 2, column probability: 'often' is not a number"),
        (2, "", "line 2, column class: is empty"),
        (7, "", "line 2, column p_value: is empty"),
    ],
)
def test_a_wrong_cell_is_named(tmp_path, triage_of, column, value, message):
    write_table(tmp_path, triage_of(["a.jpg"]))
    path = tmp_path / "triage.csv"
    rows = list(csv.reader(path.read_text(encoding="utf-8").splitlines()))
    rows[1][column] = value
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    with pytest.raises(DataError, match=message):
        read_table(tmp_path)


def test_other_files_are_told_apart(tmp_path):
    with pytest.raises(DataError, match="no triage here; `anedl fit` makes one"):
        read_table(tmp_path)
    for name in ("intake.json", "config.json"):  # a fit that was killed while it trained
        (tmp_path / name).write_text("{}")
    with pytest.raises(DataError, match="no triage here; finish the run with `--resume`"):
        read_table(tmp_path)
    (tmp_path / "triage.csv").write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match="line 1: no column 'file'; found a, b"):
        read_table(tmp_path)
    (tmp_path / "triage.csv").write_bytes(b"file,\xff\xfe")
    with pytest.raises(DataError, match=r"line 1: .* is not UTF-8; save the file in UTF-8"):
        read_table(tmp_path)


def test_the_csv_needs_no_pyarrow(tmp_path, triage_of, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    paths = write_table(tmp_path, triage_of(["a.jpg"]))
    assert [path.name for path in paths] == ["triage.csv", "triage.json"]
    assert read_table(tmp_path).evidence.names == ("a.jpg",)
