"""Where images live, and runs whose images are files."""

import multiprocessing

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from anedl.data.batches import ImageBatches
from anedl.data.dataset import ArrayImages, FileImages
from anedl.data.disk import DiskStream
from anedl.data.resident import ResidentStream
from anedl.engine import placement
from anedl.engine.evaluate import evaluate_run
from anedl.engine.execution import Compiled
from anedl.engine.placement import build_stream, decoded_bytes, is_resident, placed
from anedl.errors import ConfigError, DataError

CPU = torch.device("cpu")
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),
]


class CutError(Exception):
    """The end of a sitting."""


def tensors_of(folder):
    names = ["best", "model", "state/step-00000009/model", "state/step-00000009/optimiser"]
    names += ["outputs/pool-last", "outputs/test-best", "outputs/validation-last"]
    found = {}
    for name in names:
        for key, value in load_file(folder / f"{name}.safetensors").items():
            found[f"{name}: {key}"] = value
    return found


def assert_same_tensors(folder, reference):
    ours, theirs = tensors_of(folder), tensors_of(reference)
    assert ours.keys() == theirs.keys()
    for key in ours:
        assert torch.equal(ours[key], theirs[key]), key


@pytest.fixture(scope="module")
def streamed(tiny_spec, tiny_run, files_problem, tmp_path_factory):
    """A run of both stages on files, read by one worker process."""
    problem = files_problem()
    spec = tiny_spec(setting=problem.setting)
    folder = tmp_path_factory.mktemp("streamed")
    results = tiny_run(spec, folder, of=problem, workers=1)
    return spec, folder, results


def test_a_run_on_files_trains_selects_and_is_judged(streamed, rows_of):
    _, folder, results = streamed
    assert multiprocessing.active_children() == [], "no worker outlives its run"
    assert results["steps"] == 9
    assert 0 <= results["last"]["test"]["error"] <= 1
    pool = load_file(folder / "outputs" / "pool-last.safetensors")
    assert len(pool["score"]) == 60
    assert len(pool["selected"]) == round(0.41 * 60)
    assert {row["stage"] for row in rows_of(folder)} == {1, 2}


def test_cut_and_continued_without_workers_gives_the_same_bits(
    streamed, tiny_run, files_problem, tmp_path, rows_of
):
    spec, reference, _ = streamed

    def cut(step):
        if step in (2, 8):  # inside an epoch of each stage
            raise CutError

    for _ in range(2):
        with pytest.raises(CutError):
            tiny_run(spec, tmp_path, of=files_problem(), after_save=cut, resume=True, workers=0)
    tiny_run(spec, tmp_path, of=files_problem(), resume=True, workers=0)
    assert_same_tensors(tmp_path, reference)
    assert rows_of(tmp_path) == rows_of(reference)


def test_evaluating_a_run_on_files_finds_its_results_again(streamed, files_problem, monkeypatch):
    _, folder, results = streamed
    monkeypatch.setattr("anedl.engine.load.own_problem", lambda *_: files_problem())
    metrics = evaluate_run(folder, "last", "cpu").test
    expected = results["last"]["test"]
    # Kernels lie in another order than while training: the last digits may differ.
    assert metrics.error == pytest.approx(expected["error"], abs=1e-9)
    assert metrics.brier == pytest.approx(expected["brier"], abs=1e-5)
    for name, row in expected["by_score"].items():
        assert metrics.by_score[name].auroc == pytest.approx(row["auroc"], abs=5e-3), name


def test_a_damaged_file_ends_the_run_and_its_workers(tiny_spec, tiny_run, files_problem, tmp_path):
    problem = files_problem()
    paths = list(problem.dataset.train.images.paths)
    damaged = tmp_path / "damaged.png"
    damaged.write_bytes(b"no picture")
    paths[int(problem.split.labelled[4])] = damaged
    broken = files_problem(images=FileImages(paths))
    with pytest.raises(DataError, match=r"damaged\.png: cannot be decoded"):
        tiny_run(tiny_spec(), tmp_path / "run", of=broken, workers=2)
    assert multiprocessing.active_children() == []


def test_small_files_are_decoded_once_and_train_like_images_in_memory(
    tiny_spec, tiny_run, files_problem, tmp_path
):
    asked = []

    class Counted(FileImages):
        def __getitem__(self, index):
            asked.append(index)
            return super().__getitem__(index)

    problem = files_problem("small")
    spec = tiny_spec("supervised", test_while_training=True)
    counted = files_problem("small", Counted(problem.dataset.train.images.paths))
    tiny_run(spec, tmp_path / "files", of=counted)
    assert sorted(asked) == list(range(120)), "each once, whatever is evaluated how often"

    pixels = placed(problem, resident=True).dataset.train.images.pixels
    assert pixels.shape == (120, 16, 16, 3)
    in_memory = files_problem("small", ArrayImages(pixels))
    tiny_run(spec, tmp_path / "memory", of=in_memory)
    ours, theirs = (
        load_file(tmp_path / name / "model.safetensors") for name in ("files", "memory")
    )
    assert all(torch.equal(ours[key], theirs[key]) for key in theirs)


def test_what_is_decoded_is_what_evaluation_would_see(files_problem):
    problem = files_problem("small")
    in_memory = placed(problem, resident=True)
    for lazy, held in (
        (problem.validation(), in_memory.validation()),
        (problem.test(), in_memory.test()),
    ):
        assert isinstance(lazy[0], ImageBatches)
        assert torch.equal(torch.cat(list(lazy[0].batches(7))), held[0])
        np.testing.assert_array_equal(lazy[1], held[1])


def test_only_images_with_a_role_are_counted(files_problem):
    assert decoded_bytes(files_problem()) == 120 * 16 * 16 * 3


def test_the_rule(files_problem, problem, monkeypatch):
    crops, small = files_problem("imagenet"), files_problem("small")
    assert is_resident("auto", problem)  # in memory
    assert not is_resident("disk", problem)
    assert is_resident("auto", small)
    assert is_resident("resident", small)
    assert not is_resident("disk", small)
    assert not is_resident("auto", crops)
    with pytest.raises(ConfigError, match=r"option stream: .*cut from images larger than 16"):
        is_resident("resident", crops)
    monkeypatch.setattr(placement, "MOST_RESIDENT_BYTES", 1000)
    assert not is_resident("auto", small)
    assert is_resident("auto", problem)
    assert placed(small, resident=False) is small
    assert placed(problem, resident=True) is problem


def test_each_place_has_its_stream(tiny_spec, files_problem, problem):
    cases = [
        ("auto", problem, ResidentStream),
        ("disk", problem, DiskStream),
        ("auto", files_problem("small"), ResidentStream),
        ("auto", files_problem("imagenet"), DiskStream),
    ]
    for wanted, of, kind in cases:
        assert type(build_stream(tiny_spec(stream=wanted), of, CPU)) is kind


def test_a_disk_stream_is_drawn_by_uncompiled_code(tiny_spec, tiny_stepper, files_problem):
    for stream, compiled in (("disk", False), ("resident", True)):
        stepper = tiny_stepper(tiny_spec(stream=stream), of=files_problem("small"))
        Compiled().prepare(stepper)
        assert (stepper.draw_batch != stepper.stream.batch) is compiled
