"""A run that was cut and continued leaves the bits of one that never was."""

import json
import multiprocessing
import random
import shutil
import time

import pytest
import torch
from safetensors.torch import load_file, save_file

from anedl.engine.checkpoint import saved_epoch
from anedl.engine.train import Surroundings, train
from anedl.errors import ConfigError, DataError
from anedl.methods.catalogue import METHODS

# After each log interval of two steps and after each epoch of three: inside and between epochs of
# both stages, the last one before the results are written.
SAVES = [2, 3, 5, 6, 8, 9]


class CutError(Exception):
    """The end of a sitting."""


def cut_at(*steps):
    def after_save(step):
        if step in steps:
            raise CutError

    return after_save


@pytest.fixture(scope="module")
def whole(tiny_spec, tiny_run, tmp_path_factory):
    """A spec's uninterrupted run, made once."""
    runs = {}

    def get(method="anedl", options=(), **engine):
        key = (method, options, *sorted(engine.items()))
        if key not in runs:
            spec = tiny_spec(method, options=dict(options), **engine)
            folder = tmp_path_factory.mktemp("whole")
            saves = []
            results = tiny_run(spec, folder, after_save=saves.append)
            assert saves == SAVES
            runs[key] = spec, folder, results
        return runs[key]

    return get


@pytest.fixture(scope="module")
def assert_same_run(rows_of, without_seconds):
    """All that a run leaves is the same to the bit, but for what a clock said."""

    def compare(folder, reference, last_step=9):
        last = f"state/step-{last_step:08d}"
        tensors = [f"{last}/{name}.safetensors" for name in ("model", "average", "optimiser")]
        tensors += ["best.safetensors", "model.safetensors"]
        outputs = sorted(path.name for path in (reference / "outputs").iterdir())
        assert outputs == sorted(path.name for path in (folder / "outputs").iterdir())
        tensors += [f"outputs/{name}" for name in outputs]
        for name in tensors:
            ours, theirs = load_file(folder / name), load_file(reference / name)
            assert ours.keys() == theirs.keys()
            for key in ours:
                assert torch.equal(ours[key], theirs[key]), f"{name}: {key}"
        assert rows_of(folder) == rows_of(reference)
        for name in ("results.json", f"{last}/position.json", "config.json", "split.json"):
            ours, theirs = (json.loads((f / name).read_text()) for f in (folder, reference))
            assert without_seconds(ours) == without_seconds(theirs), name
        assert {p.name for p in folder.iterdir()} == {p.name for p in reference.iterdir()}

    return compare


def test_what_is_compared_is_worth_comparing(whole):
    """The reference has an EMA that differs from the weights, a moved q̂ and a selection."""
    _, folder, results = whole()
    state = {
        name: load_file(folder / f"state/step-00000009/{name}.safetensors")
        for name in ("model", "average", "optimiser")
    }
    weight = "classifier.weight"
    assert not torch.equal(state["model"][weight], state["average"][weight])
    assert state["model"]["prior"].std() > 0
    assert len(state["optimiser"]["selected"]) == round(0.41 * 80)
    assert state["optimiser"]["optimiser.momentum"].norm() > 0
    assert results["steps"] == 9


@pytest.mark.parametrize(
    "case",
    [
        {},
        {"method": "supervised", "optimiser": "adam"},
        {"fresh_statistics": 2},
        {"options": (("pseudo_labels", "average"),)},
        {"options": (("pseudo_labels", "average"), ("selection_memory", 0.5), ("cutmix", 0.5))},
        {"options": (("rotation_weight", 0.5), ("forward_passes", "one"))},
        {"precision": "bf16"},
    ],
    ids=[
        "anedl",
        "supervised-adam",
        "fresh-statistics",
        "average-names",
        "memory-and-cutmix",
        "turned",
        "bf16",
    ],
)
def test_cut_after_every_checkpoint(whole, tiny_run, tmp_path, assert_same_run, case):
    """Six cuts in one run: each sitting continues what the one before it left."""
    spec, reference, _ = whole(**case)
    for step in SAVES:
        with pytest.raises(CutError):
            tiny_run(spec, tmp_path, after_save=cut_at(step), resume=True)
    tiny_run(spec, tmp_path, resume=True)
    assert_same_run(tmp_path, reference)


@pytest.mark.parametrize("more", [{"networks_teach": True}, {"rotation_weight": 0.5}])
def test_cut_around_fresh_networks(tiny_spec, tiny_run, tmp_path, assert_same_run, more):
    """Three of them, each with two epochs."""
    options = {"networks": 3, "selection_count": 24, **more}
    spec = tiny_spec(options=options, epochs=6, pretrain_epochs=3)
    assert spec.restarts == (2, 4)
    whole, pieces = tmp_path / "whole", tmp_path / "pieces"
    saves = []
    tiny_run(spec, whole, after_save=saves.append)
    for stop in saves:
        with pytest.raises(CutError):
            tiny_run(spec, pieces, after_save=cut_at(stop), resume=True)
    tiny_run(spec, pieces, resume=True)
    assert_same_run(pieces, whole, saves[-1])


@pytest.mark.parametrize("step", [2, 5])
def test_cut_once(whole, tiny_run, tmp_path, assert_same_run, step):
    spec, reference, _ = whole()
    with pytest.raises(CutError):
        tiny_run(spec, tmp_path, after_save=cut_at(step))
    tiny_run(spec, tmp_path, resume=True)
    assert_same_run(tmp_path, reference)


@pytest.mark.parametrize("method", [name for name in METHODS if name != "anedl"])
def test_every_method_goes_on_as_if_it_had_not_been_cut(
    whole, tiny_run, tmp_path, assert_same_run, method
):
    """Cut inside each stage: queues, ramps and memories of a method are all in the checkpoint."""
    spec, reference, _ = whole(method)
    for step in (SAVES[0], SAVES[-2]):
        with pytest.raises(CutError):
            tiny_run(spec, tmp_path, after_save=cut_at(step), resume=True)
    tiny_run(spec, tmp_path, resume=True)
    assert_same_run(tmp_path, reference)


def test_steps_after_the_last_checkpoint_are_taken_again(
    whole, tiny_run, tmp_path, monkeypatch, assert_same_run
):
    """Cut before the second epoch's checkpoint: its log rows and best model exist already."""
    spec, reference, _ = whole()
    calls = []
    original = train.__globals__["save_checkpoint"]

    def dying(folder, stepper, position, digest):
        calls.append(position.step)
        if len(calls) > 2:
            raise CutError
        original(folder, stepper, position, digest)

    with monkeypatch.context() as patch:
        patch.setattr("anedl.engine.train.save_checkpoint", dying)
        with pytest.raises(CutError):
            tiny_run(spec, tmp_path)
    assert calls == [2, 3, 5]
    last_row = (tmp_path / "metrics.jsonl").read_text().splitlines()[-1]
    assert json.loads(last_row)["step"] == 5, "the log is ahead of the checkpoint"
    tiny_run(spec, tmp_path, resume=True)
    assert_same_run(tmp_path, reference)


def test_a_sitting_with_no_checkpoint_starts_again(whole, tiny_run, tmp_path, assert_same_run):
    spec, reference, _ = whole()
    with pytest.raises(CutError):
        tiny_run(spec, tmp_path, after_save=cut_at(2))
    shutil.rmtree(tmp_path / "state")
    tiny_run(spec, tmp_path, resume=True)
    assert_same_run(tmp_path, reference)


def test_when_checkpoints_are_saved_changes_nothing(whole, tiny_run, tmp_path, assert_same_run):
    spec, reference, _ = whole()
    saves = []
    tiny_run(spec, tmp_path, save_seconds=3600.0, after_save=saves.append)
    assert saves == [9]
    assert_same_run(tmp_path, reference)


def test_resuming_a_finished_run_only_writes_its_results_again(
    whole, tiny_run, tmp_path, without_seconds
):
    spec, reference, results = whole()
    folder = tmp_path / "copy"
    shutil.copytree(reference, folder)
    (folder / "results.json").unlink()
    again = tiny_run(spec, folder, resume=True, after_save=cut_at(*range(100)))
    assert without_seconds(again) == without_seconds(results)
    assert (folder / "results.json").exists()


def test_a_run_that_ended_before_its_first_checkpoint_begins_anew_and_says_so(
    whole, problem, tmp_path, without_seconds, capsys
):
    spec, reference, results = whole()
    shutil.copy(reference / "config.json", tmp_path)
    again = train(spec, tmp_path, Surroundings(device="cpu", resume=True), problem)
    assert "ended before its first checkpoint" in capsys.readouterr().err
    assert without_seconds(again) == without_seconds(results)


def test_a_folder_with_a_run_is_not_overwritten(whole, tiny_run):
    spec, reference, _ = whole()
    before = {path: path.read_bytes() for path in reference.rglob("*") if path.is_file()}
    with pytest.raises(ConfigError, match=r"already holds a run.*--resume"):
        tiny_run(spec, reference)
    assert {p: p.read_bytes() for p in reference.rglob("*") if p.is_file()} == before


def test_another_spec_cannot_resume_a_run_and_leaves_it_as_it_was(whole, tiny_spec, tiny_run):
    _, reference, _ = whole()
    before = {path: path.read_bytes() for path in reference.rglob("*") if path.is_file()}
    with pytest.raises(ConfigError, match=r"config\.json: the run in this folder has another"):
        tiny_run(tiny_spec(learning_rate=0.5), reference, resume=True)
    assert {p: p.read_bytes() for p in reference.rglob("*") if p.is_file()} == before


def test_a_damaged_checkpoint_is_told_by_train(whole, tiny_run, tmp_path):
    spec, _, _ = whole()
    with pytest.raises(CutError):
        tiny_run(spec, tmp_path, after_save=cut_at(3))
    model = tmp_path / "state" / "step-00000003" / "model.safetensors"
    model.write_bytes(model.read_bytes()[:1000])
    with pytest.raises(DataError, match=r"cannot be read .* remove .*state to start"):
        tiny_run(spec, tmp_path, resume=True)


def kill_while_training(spec, folder, problem, delays):
    """Start the run again and again, killing each process `delay` after its first checkpoint.

    The last process is left to finish. Returns how many were killed and the step then reached.
    """
    context = multiprocessing.get_context("forkserver")
    # One process imports torch, the others are its copies: each starts within milliseconds.
    context.set_forkserver_preload(
        ["anedl.engine.train", "sklearn.metrics", "sklearn.datasets", "torch.utils.tensorboard"]
    )
    surroundings = Surroundings(device="cpu", quiet=True, resume=True, save_seconds=0.0)
    pointer = folder / "state" / "last.json"

    def last_checkpoint() -> str:
        return json.loads(pointer.read_text())["checkpoint"] if pointer.exists() else ""

    killed, reached = 0, [""]
    for delay in [*delays, None]:
        process = context.Process(target=train, args=(spec, folder, surroundings, problem))
        process.start()
        if delay is not None:
            while process.is_alive() and last_checkpoint() == reached[-1]:
                time.sleep(0.002)
            time.sleep(delay)
            process.kill()
        process.join(120)
        killed += process.exitcode == -9
        reached.append(last_checkpoint())
    assert process.exitcode == 0
    assert reached == sorted(reached), "no older checkpoint ever comes back"
    return killed, reached


def check_kills(spec, reference, folder, problem, assert_same_run, monkeypatch, delays):
    # Read by the fork server when it starts: the sums of the reference were made by one thread.
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    killed, reached = kill_while_training(spec, folder, problem, delays)
    assert killed >= 1
    assert reached[-1] == "step-00000009"
    assert_same_run(folder, reference)
    assert not list(folder.rglob(".*")), "nothing is left of files that were being written"


def test_killed_at_random_moments(whole, problem, tmp_path, monkeypatch, assert_same_run):
    spec, reference, _ = whole()
    delays = [0.0, 0.03, 0.01]
    check_kills(spec, reference, tmp_path, problem, assert_same_run, monkeypatch, delays)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10))
def test_killed_at_many_random_moments(
    whole, problem, tmp_path, monkeypatch, assert_same_run, seed
):
    spec, reference, _ = whole()
    generator = random.Random(seed)
    delays = [generator.choice([0.0, 0.02, 0.1, 0.3]) * generator.random() for _ in range(6)]
    check_kills(spec, reference, tmp_path, problem, assert_same_run, monkeypatch, delays)


def test_a_best_model_of_steps_that_were_lost_is_not_kept(tiny_spec, tiny_run, tmp_path):
    """It was written after the checkpoint that the run goes on from; its epoch comes again."""
    spec = tiny_spec("anedl")
    with pytest.raises(CutError):
        tiny_run(spec, tmp_path, after_save=cut_at(6))
    lost = {key: torch.zeros_like(t) for key, t in load_file(tmp_path / "best.safetensors").items()}
    save_file(lost, tmp_path / "best.safetensors", {"epoch": "2"})
    results = tiny_run(spec, tmp_path, resume=True)
    assert saved_epoch(tmp_path / "best.safetensors") == results["best_val"]["epoch"]
    kept = load_file(tmp_path / "best.safetensors")
    assert any(tensor.any() for tensor in kept.values())
