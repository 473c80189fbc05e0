"""`anedl predict` on a tiny run of the digits."""

import csv
import gc
import io
import json
import os
import pty
import shutil
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from anedl.cli import main
from anedl.cli.predict import ImagesProgress
from anedl.export.images import classify
from anedl.export.predictor import load
from anedl.export.tables import ParquetWriter
from anedl.intake.photographs import reads_heic

parquet = pytest.importorskip("pyarrow.parquet")
COLUMNS = [
    "file", "class", "probability", "unknown", "inlier_score", "familiarity", "p_value",
    "epistemic", "aleatoric", "error",
]  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "anedl"
    words = ["--epochs", "2", "--epoch-steps", "3", "--pretrain-epochs", "1", "--batch-size", "8"]
    assert main(["train", "digits", *words, "--quiet", "--no-report", "--out", str(folder)]) == 0
    pixels = np.random.default_rng(4).integers(0, 256, (19, 8, 8, 3), dtype=np.uint8)
    scores = load(folder, device="cpu").predict(pixels).inlier_score
    record = {"fresh": scores.tolist(), "seen": [], "level": 0.3}
    (folder / "calibration.json").write_text(json.dumps(record))
    return folder


@pytest.fixture(scope="module")
def pile(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pile")
    rng = np.random.default_rng(1)
    (folder / "more").mkdir()
    for name in ("a.png", 'b, "c".jpg', "=sum.png", "line\nbreak.png", "more/d.webp"):
        pixels = rng.integers(0, 256, (11, 17, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / name)
    return folder


def read_csv(text):
    reader = csv.DictReader(io.StringIO(text))
    return reader.fieldnames, list(reader)


def predict(capsys, *words, status=0):
    assert main(["predict", *map(str, words), "--workers", "0", "--device", "cpu"]) == status
    return capsys.readouterr()


def test_a_folder_as_csv(run, pile, capsys):
    fields, rows = read_csv(predict(capsys, run, pile).out)
    assert fields == COLUMNS
    names = ["=sum.png", "a.png", 'b, "c".jpg', "line\nbreak.png", "more/d.webp"]
    shown = [f"{pile}/{name}".replace("\n", r"\x0a") for name in names]
    assert [row["file"] for row in rows] == shown
    expected = classify(load(run, device="cpu"), [pile / name for name in names])
    for i, row in enumerate(rows):
        assert row["class"] == "012345"[expected.class_index[i]]
        assert float(row["probability"]) == pytest.approx(expected.probability[i], rel=1e-5)
        assert float(row["inlier_score"]) == pytest.approx(expected.inlier_score[i], rel=1e-5)
        assert float(row["p_value"]) == expected.p_value[i]
        assert row["unknown"] == str(bool(expected.unknown[i])).lower()
        assert float(row["epistemic"]) == pytest.approx(expected.epistemic[i], rel=1e-4)
        assert row["error"] == ""


def test_json_lines_and_parquet_hold_the_same(run, pile, tmp_path, capsys):
    printed = predict(capsys, run, pile, "--format", "jsonl").out
    rows = [json.loads(line) for line in printed.splitlines()]
    assert [list(row) for row in rows] == [COLUMNS] * 5
    out = tmp_path / "new" / "rows.parquet"
    assert predict(capsys, run, pile, "--out", out).out == ""
    assert parquet.read_table(out).to_pylist() == rows
    assert [path.name for path in out.parent.iterdir()] == ["rows.parquet"]


def test_parquet_has_row_groups_of_bounded_size(run, pile, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("anedl.export.tables.ROW_GROUP", 2)
    predict(capsys, run, pile, "--out", tmp_path / "rows.parquet")
    file = parquet.ParquetFile(tmp_path / "rows.parquet")
    sizes = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
    assert sizes == [2, 2, 1]
    file.close()


def test_the_order_given_is_kept_across_batches(run, pile, capsys, monkeypatch):
    monkeypatch.setattr("anedl.export.predictor.BATCH", 2)
    one, other = pile / "a.png", pile / "more" / "d.webp"
    paths = [other, one, one, other, pile / "nothing.png", one, other]
    result = predict(capsys, run, *paths, status=1)
    _, rows = read_csv(result.out)
    assert [row["file"] for row in rows] == [str(path) for path in paths]
    scores = [float(row["inlier_score"] or 0) for row in rows]
    of = dict(zip(paths, scores, strict=True))
    assert of[one] != pytest.approx(of[other], rel=1e-3)
    np.testing.assert_allclose(scores, [of[path] for path in paths], rtol=1e-5)
    assert "is not there" in rows[4]["error"]
    assert rows[4]["class"] == ""
    assert "1 image was not read" in result.err


def test_broken_files_have_rows_of_their_own(run, pile, tmp_path, capsys):
    (tmp_path / "empty.jpg").write_bytes(b"")
    (tmp_path / "words.png").write_text("no image")
    (tmp_path / "notes.txt").write_text("passed over")
    os.mkfifo(tmp_path / "pipe.png")
    Image.new("L", (1, 1)).save(tmp_path / "one.png")
    result = predict(capsys, run, tmp_path, "--format", "jsonl", status=1)
    rows = {row["file"].split("/")[-1]: row for row in map(json.loads, result.out.splitlines())}
    assert list(rows) == ["empty.jpg", "one.png", "pipe.png", "words.png"]
    assert rows["one.png"]["error"] is None
    assert rows["one.png"]["class"] in "012345"
    assert "empty" in rows["empty.jpg"]["error"]
    assert "named pipe" in rows["pipe.png"]["error"]
    assert "1 file is passed over" in result.err
    assert "3 images were not read" in result.err


def test_photos_that_cannot_be_read_here_have_rows_too(run, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    reads_heic.cache_clear()
    (tmp_path / "IMG_1.HEIC").write_bytes(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(500))
    (tmp_path / "raw.CR2").write_bytes(b"II*\0" + bytes(500))
    result = predict(capsys, run, tmp_path, "--quiet", status=1)
    reads_heic.cache_clear()
    photo, raw = read_csv(result.out)[1]
    assert photo["error"].startswith("it is a HEIC photo, which cannot be read here; convert it")
    assert raw["error"].startswith("it is a camera's raw file")
    assert "passed over" not in result.err
    assert "2 images were not read" in result.err


@pytest.mark.parametrize("words", [[], ["--quiet"]])
def test_that_there_was_nothing_to_judge_is_told(run, tmp_path, capsys, words):
    """Quiet is about progress."""
    (tmp_path / "notes.txt").write_text("passed over")
    told = predict(capsys, run, tmp_path, *words, status=1)
    assert read_csv(told.out) == (COLUMNS, [])
    assert f"there are no images in {tmp_path}/; the table is empty" in told.err
    assert "1 file is passed over: not an image" in told.err


def test_a_folder_without_images_among_others_is_told(run, pile, tmp_path, capsys):
    """A mistyped name, or photographs that did not arrive: whoever automates this has to hear."""
    told = predict(capsys, run, tmp_path, pile, "--quiet", status=1)
    assert len(read_csv(told.out)[1]) == 5
    assert told.err == f"anedl: there are no images in {tmp_path}/\n"


def test_a_list_without_paths_is_no_failure(exported):
    """`find` that finds nothing new is an everyday thing."""
    result = subprocess.run(
        command(exported, "-", "--quiet"), input="", capture_output=True, text=True
    )
    assert (result.returncode, result.stdout.splitlines()) == (0, [",".join(COLUMNS)])
    assert result.stderr == "anedl: there are no images in what was named; the table is empty\n"


def test_a_level_of_ones_own(run, pile, capsys):
    for level in ("0.05", "0.95"):
        _, rows = read_csv(predict(capsys, run, pile, "--level", level).out)
        for row in rows:
            assert (row["unknown"] == "true") == (float(row["p_value"]) <= float(level))


SAID_OF_19 = (
    "anedl: nothing is rejected, for 19 held-out images cannot certify {asked}: the finest is 5 %; "
    "take a level of 0.05 or more, fit with more labelled images, or calibrate it with more known "
    "ones (`anedl calibrate`)\n"
)


@pytest.mark.parametrize("runtime", ["torch", "onnx"])
def test_that_a_level_is_too_fine_is_told(run, pile, runtime, capsys):
    if runtime == "onnx":
        pytest.importorskip("onnxscript")
    words = ["--runtime", runtime, "--quiet", "--level"]
    told = predict(capsys, run, pile, *words, "0.049")
    assert told.err == SAID_OF_19.format(asked="4.9 %")
    assert {row["unknown"] for row in read_csv(told.out)[1]} == {"false"}
    assert predict(capsys, run, pile, *words, "0.05").err == ""


def test_that_the_level_of_the_run_is_too_fine_is_told(run, pile, tmp_path, capsys):
    folder = shutil.copytree(run, tmp_path / "run")
    record = json.loads((folder / "calibration.json").read_text())
    (folder / "calibration.json").write_text(json.dumps({**record, "level": 0.01}))
    told = predict(capsys, folder, pile, "--quiet")
    assert told.err == SAID_OF_19.format(asked="1 %")
    assert {row["unknown"] for row in read_csv(told.out)[1]} == {"false"}
    assert predict(capsys, folder, pile, "--quiet", "--level", "0.06").err == ""


def test_csv_cells_are_no_formulas(run, pile, capsys, monkeypatch):
    monkeypatch.chdir(pile)
    _, rows = read_csv(predict(capsys, run, "=sum.png").out)
    assert rows[0]["file"] == "'=sum.png"


def test_a_failure_leaves_the_old_file(run, pile, tmp_path, capsys, monkeypatch):
    out = tmp_path / "rows.csv"
    out.write_text("old")

    def fail(*_):
        raise OSError("the disk is full")

    monkeypatch.setattr("anedl.export.tables.CsvWriter.write", fail)
    assert "disk is full" in predict(capsys, run, pile, "--out", out, status=1).err
    assert out.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["rows.csv"]


def test_a_device_is_written_to_and_not_replaced(run, pile, capsys):
    predict(capsys, run, pile / "a.png", "--out", "/dev/null")
    assert not os.path.isfile("/dev/null")  # noqa: PTH113


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--level", "2"], "between 0 and 1"),
        (["--model", "best", "--level", "0.1"], "not calibrated"),
        (["--workers", "-2"], "--workers -2"),
        (["--out", "."], "a folder"),
        (["--out", "p.xlsx"], "written as .csv, .jsonl (.ndjson) or .parquet (.pq), not as .xlsx"),
    ],
)
def test_wrong_words_are_told(run, pile, words, said, capsys):
    assert main(["predict", str(run), str(pile), *words]) == 1
    assert said in capsys.readouterr().err


def test_what_is_no_run_is_told(tmp_path, pile, capsys):
    assert main(["predict", str(tmp_path), str(pile)]) == 1
    assert "not the folder of a run" in capsys.readouterr().err


def command(*words):
    start = "import sys; from anedl.cli import main; sys.exit(main(sys.argv[1:]))"
    return [sys.executable, "-c", start, "predict", *map(str, words), "--device", "cpu"]


@pytest.fixture(scope="module")
def exported(run):
    """An ONNX file starts in a moment, without torch: for tests that need a process."""
    pytest.importorskip("onnxscript")
    target = run / "model.onnx"
    assert main(["export", str(run), "--onnx", str(target)]) == 0
    return target


def test_paths_from_standard_input_between_others(exported, pile):
    names = [pile / "line\nbreak.png", pile / "a.png"]
    result = subprocess.run(
        command(exported, pile / "=sum.png", "-", pile / "more", "--format", "jsonl"),
        input=b"\0".join(os.fsencode(name) for name in names) + b"\0", capture_output=True,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    files = [json.loads(line)["file"] for line in result.stdout.splitlines()]
    assert files == [
        f"{pile}/=sum.png", rf"{pile}/line\x0abreak.png", f"{pile}/a.png", f"{pile}/more/d.webp",
    ]  # fmt: skip


def run_into(words, output):
    """Exit status and what was said, of a command whose output goes to this descriptor."""
    result = subprocess.run(words, stdout=output, stderr=subprocess.PIPE, text=True)
    return result.returncode, result.stderr


def test_parquet_goes_through_a_pipe(exported, pile, tmp_path):
    """To `cat`, which gives back what it read."""
    expected = tmp_path / "rows.parquet"
    quiet = ["--quiet", "--workers", "0", "--format", "parquet"]
    assert run_into(command(exported, pile, *quiet, "--out", expected), None) == (0, "")
    for words in (quiet, [*quiet, "--out", "/dev/stdout"]):
        with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as cat:
            assert run_into(command(exported, pile, *words), cat.stdin) == (0, "")
            cat.stdin.close()
            table = parquet.read_table(io.BytesIO(cat.stdout.read()))
        assert table.equals(parquet.read_table(expected))
        assert table.num_rows == 5


def test_text_goes_through_a_pipe_with_a_name(exported, pile):
    for named in ("/dev/stdout", "/dev/fd/1"):
        words = command(exported, pile, "--quiet", "--workers", "0", "--out", named)
        result = subprocess.run(words, capture_output=True, text=True)
        assert (result.returncode, result.stderr) == (0, "")
        fields, rows = read_csv(result.stdout)
        assert (fields, len(rows)) == (COLUMNS, 5)


def test_parquet_is_kept_from_a_terminal(exported, pile):
    screen, terminal = pty.openpty()
    try:
        status, said = run_into(command(exported, pile, "--quiet", "--format", "parquet"), terminal)
    finally:
        os.close(terminal)
        os.close(screen)
    assert status == 1
    assert "not for a screen" in said
    assert "--out FILE" in said


def test_half_a_parquet_table_is_not_taken_for_the_whole(run, pile, capfdbinary, monkeypatch):
    """After a failure there is no index, and without one nothing can be read."""
    monkeypatch.setattr("anedl.export.tables.ROW_GROUP", 2)
    write = ParquetWriter.write

    def write_and_fail(self, rows):
        write(self, rows)
        raise OSError("the disk is full")

    monkeypatch.setattr(ParquetWriter, "write", write_and_fail)
    words = ["--format", "parquet", "--workers", "0", "--device", "cpu", "--quiet"]
    assert main(["predict", str(run), str(pile), *words]) == 1
    gc.collect()
    written = capfdbinary.readouterr().out
    assert written.startswith(b"PAR1")
    assert len(written) > 500  # the first rows are there
    with pytest.raises(Exception, match="magic bytes"):
        parquet.read_table(io.BytesIO(written))


def test_answers_come_while_the_list_is_still_open(exported, pile):
    with subprocess.Popen(
        command(exported, "-", "--quiet"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        for name in ("a.png", "=sum.png"):
            process.stdin.write(f"{pile / name}\n")
            process.stdin.flush()
            line = process.stdout.readline()
            line = process.stdout.readline() if line.startswith("file,") else line
            assert line.startswith(f"{pile / name},")
        process.stdin.close()
        assert process.stdout.read() == ""
        assert process.wait() == 0


def test_a_reader_that_leaves_is_no_error(exported, pile):
    """The list is still open and more is to come when the reader goes."""
    with subprocess.Popen(
        command(exported, "-", "--workers", "0"), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        process.stdin.write(f"{pile / 'a.png'}\n")
        process.stdin.flush()
        assert process.stdout.readline().startswith("file,")
        assert process.stdout.readline() != ""
        process.stdout.close()
        process.stdin.write(f"{pile / 'a.png'}\n")
        process.stdin.flush()
        assert process.wait(30) == 0
        assert process.stderr.read() == ""


def test_both_runtimes_agree(run, exported, pile, capsys):
    _, by_torch = read_csv(predict(capsys, run, pile).out)
    _, by_onnx = read_csv(predict(capsys, run, pile, "--runtime", "onnx").out)
    for one, other in zip(by_torch, by_onnx, strict=True):
        assert (one["file"], one["class"]) == (other["file"], other["class"])
        assert float(one["inlier_score"]) == pytest.approx(float(other["inlier_score"]), rel=2e-5)


def test_progress_says_how_long_it_will_take(capsys, monkeypatch):
    clock = iter([0.0, 1.0, 40.0, 41.0])
    monkeypatch.setattr("anedl.cli.predict.time.monotonic", lambda: next(clock))
    progress = ImagesProgress(100)
    progress.add(10)  # a moment after the start: nothing is shown
    progress.add(30)
    progress.close()
    assert capsys.readouterr().err == " 40%  40 of 100 images  1.0 a second  1:00 left\n"
    assert ImagesProgress(None).text(50.0) == "0 images  0.0 a second"


def test_that_another_model_is_the_calibrated_one_is_told(run, pile, capsys):
    told = predict(capsys, run, pile, "--model", "best").err
    assert "the last model is calibrated, not the best one: there are no p-values" in told
    assert "`anedl calibrate RUN KNOWN/ -o FOLDER --model best` sets a certified threshold" in told
    assert "calibrated" not in predict(capsys, run, pile, "--model", "last").err


@pytest.mark.parametrize("exporting", [False, True])
def test_that_nothing_certifies_what_is_unknown_is_told(run, pile, tmp_path, capsys, exporting):
    """As where a run was copied without its calibration."""
    model = shutil.copytree(run, tmp_path / "run", ignore=lambda *_: {"calibration.json"})
    if exporting:
        pytest.importorskip("onnxscript")
        assert main(["export", str(model), "--onnx", str(tmp_path / "m.onnx")]) == 0
        model = tmp_path / "m.onnx"
        capsys.readouterr()
    told = predict(capsys, model, pile, "--quiet")
    assert told.err == (
        "anedl: this model is not calibrated: there are no p-values and no familiarity, and a "
        "threshold of its validation images, which certifies nothing, says what is unknown; "
        "`anedl calibrate RUN KNOWN/ -o FOLDER` sets a certified threshold\n"
    )
    rows = read_csv(told.out)[1]
    assert {row["p_value"] for row in rows} == {""}
    assert {row["unknown"] for row in rows} <= {"true", "false"}


def test_that_nothing_says_what_is_unknown_is_told(run, pile, tmp_path, capsys):
    folder = tmp_path / "run"
    shutil.copytree(run, folder, ignore=lambda *_: {"calibration.json", "results.json"})
    told = predict(capsys, folder, pile, "--quiet")
    assert "no familiarity, and nothing says what is unknown; `anedl calibrate" in told.err
    assert {row["unknown"] for row in read_csv(told.out)[1]} == {""}
