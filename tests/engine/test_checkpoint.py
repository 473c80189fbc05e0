"""State on disk: complete, without pickles, and whole whatever happens while it is written."""

import itertools
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from anedl.data.dataset import ArrayImages, Dataset, LabelledImages
from anedl.data.protocol import Split
from anedl.data.settings import get_setting
from anedl.engine import checkpoint
from anedl.engine.checkpoint import (
    Position,
    load_checkpoint,
    load_module,
    save_checkpoint,
    save_model,
)
from anedl.engine.problem import Problem
from anedl.engine.spec import make_spec
from anedl.errors import DataError
from anedl.methods.base import Stage

POSITION = Position(4, torch.tensor([1, 5, 9]), {"epoch": 0, "validation_error": 0.5}, 12.5)
HASH = "a" * 64


class KilledError(Exception):
    """Stands for the end of the process."""


@pytest.fixture
def trained(tiny_spec, tiny_stepper):
    stepper = tiny_stepper(tiny_spec(options={"debias_momentum": 0.5}))
    stepper.begin_epoch(Stage.SELF_TRAIN, 0, 0, torch.arange(10))
    stepper.take_many(2)
    return stepper


def state_of(stepper) -> dict[str, torch.Tensor]:
    found = {f"model.{k}": v for k, v in stepper.method.state_dict().items()}
    found |= {f"average.{k}": v for k, v in stepper.average.state_dict().items()}
    found |= {f"state.{k}": v for k, v in stepper.optimiser.state.items()}
    found |= {f"state.{k}": v for k, v in stepper.precision.state.items()}
    return {key: value.detach().clone() for key, value in found.items()}


def same(first, second) -> bool:
    assert first.keys() == second.keys()
    return all(torch.equal(first[key], second[key]) for key in first)


@pytest.mark.parametrize("engine", [{}, {"optimiser": "adam"}], ids=str)
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_round_trip(tmp_path, tiny_spec, tiny_stepper, engine, precision):
    spec = tiny_spec(**engine)
    stepper = tiny_stepper(spec, precision)
    stepper.begin_epoch(Stage.PRETRAIN, 0, 0, None)
    stepper.take_many(2)
    for value in stepper.precision.state.values():
        value.fill_(77.0)
    save_checkpoint(tmp_path, stepper, POSITION, HASH)
    fresh = tiny_stepper(spec, precision)
    assert not same(state_of(stepper), state_of(fresh))
    found = load_checkpoint(tmp_path, fresh, HASH)
    assert same(state_of(stepper), state_of(fresh))
    assert torch.equal(found.selected, POSITION.selected)
    assert (found.step, found.best, found.seconds) == (4, POSITION.best, 12.5)


def test_what_is_loaded_stays_in_the_flat_buffers(tmp_path, trained, tiny_spec, tiny_stepper):
    """Else the optimiser would go on training tensors that the network no longer reads."""
    save_checkpoint(tmp_path, trained, POSITION, HASH)
    fresh = tiny_stepper(tiny_spec())
    load_checkpoint(tmp_path, fresh, HASH)
    assert torch.equal(fresh.flat.values, trained.flat.values)
    assert torch.equal(fresh.flat_average.values, trained.flat_average.values)
    with torch.no_grad():
        fresh.flat.values.zero_()
    assert all((p == 0).all() for p in fresh.method.parameters())


def test_no_selection_and_no_best_are_kept_as_such(tmp_path, trained):
    save_checkpoint(tmp_path, trained, Position(4, None, None, 0.0), HASH)
    assert load_checkpoint(tmp_path, trained, HASH) == Position(4, None, None, 0.0)


def test_nothing_saved_yet(tmp_path, trained):
    assert load_checkpoint(tmp_path / "nowhere", trained, HASH) is None


def test_only_safetensors_and_json_and_nothing_pickled(tmp_path, trained):
    save_checkpoint(tmp_path, trained, POSITION, HASH)
    save_model(tmp_path / "model.safetensors", trained.average, {"epoch": "3"})
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.suffix for path in files} == {".safetensors", ".json"}
    for path in files:
        content = path.read_bytes()
        if path.suffix == ".json":
            json.loads(content)
        else:
            # A header of its own length in JSON, and then exactly the tensors' bytes.
            length = int.from_bytes(content[:8], "little")
            header = json.loads(content[8 : 8 + length])
            ends = [v["data_offsets"][1] for k, v in header.items() if k != "__metadata__"]
            assert max(ends) == len(content) - 8 - length
        # zip (torch.save), pickle protocols 2 to 5
        assert not content.startswith((b"PK", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"))


def test_a_newer_checkpoint_takes_the_place_of_the_older(tmp_path, trained):
    for step in (4, 6, 8):
        save_checkpoint(tmp_path, trained, replace(POSITION, step=step), HASH)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["last.json", "step-00000008"]
    assert load_checkpoint(tmp_path, trained, HASH).step == 8


def test_another_configuration_is_refused_and_nothing_loaded(tmp_path, trained):
    save_checkpoint(tmp_path, trained, POSITION, HASH)
    with torch.no_grad():
        trained.flat.values.zero_()
    with pytest.raises(DataError, match=r"another configuration; resume with the run's own"):
        load_checkpoint(tmp_path, trained, "b" * 64)
    assert (trained.flat.values == 0).all()


def damage_nothing_left(path: Path) -> None:
    path.write_bytes(b"")


def damage_cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def damage_garbled(path: Path) -> None:
    path.write_bytes(b"\x00\xff" * 40)


def damage_removed(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize(
    "damage",
    [damage_nothing_left, damage_cut_short, damage_garbled, damage_removed],
    ids=lambda function: function.__name__,
)
@pytest.mark.parametrize(
    "name",
    [
        "last.json", "step-00000004/position.json", "step-00000004/model.safetensors",
        "step-00000004/average.safetensors", "step-00000004/optimiser.safetensors",
    ],
)  # fmt: skip
def test_a_damaged_file_is_told_with_a_remedy(tmp_path, trained, name, damage):
    save_checkpoint(tmp_path, trained, POSITION, HASH)
    damage(tmp_path / name)
    if name == "last.json" and damage is damage_removed:
        assert load_checkpoint(tmp_path, trained, HASH) is None
        return
    before = state_of(trained)
    with pytest.raises(DataError, match=f"cannot be read.*remove {tmp_path} to start") as caught:
        load_checkpoint(tmp_path, trained, HASH)
    assert str(tmp_path) in str(caught.value)
    assert same(before, state_of(trained)), "nothing is loaded from a damaged checkpoint"


@pytest.mark.parametrize("content", ["[]", "{}", '{"checkpoint": 3}', "null"])
def test_a_pointer_that_is_json_but_no_pointer(tmp_path, trained, content):
    save_checkpoint(tmp_path, trained, POSITION, HASH)
    (tmp_path / "last.json").write_text(content)
    with pytest.raises(DataError, match="cannot be read"):
        load_checkpoint(tmp_path, trained, HASH)


def test_a_checkpoint_without_a_loss_scale_is_refused_under_fp16(
    tmp_path, trained, tiny_spec, tiny_stepper
):
    save_checkpoint(tmp_path, trained, POSITION, HASH)
    with pytest.raises(DataError, match="loss_scale"):
        load_checkpoint(tmp_path, tiny_stepper(tiny_spec(), "fp16"), HASH)


def test_killed_at_any_operation_the_last_complete_checkpoint_remains(
    tmp_path, monkeypatch, trained, tiny_spec, tiny_stepper
):
    """The process ends before each file operation in turn; what loads is the old or the new."""
    save_checkpoint(tmp_path / "0", trained, POSITION, HASH)
    old = state_of(trained)
    trained.take_many(1)
    new = state_of(trained)
    assert not same(old, new)
    loaded = tiny_stepper(tiny_spec())
    found = []
    for killed_at in itertools.count(1):
        folder = tmp_path / str(killed_at)
        shutil.copytree(tmp_path / "0", folder)
        count = itertools.count(1)
        with monkeypatch.context() as patch:

            def dying(function, count=count, killed_at=killed_at):
                def call(*args, **keywords):
                    if next(count) == killed_at:
                        raise KilledError
                    return function(*args, **keywords)

                return call

            patch.setattr(checkpoint, "save_file", dying(checkpoint.save_file))
            patch.setattr(checkpoint, "write_json", dying(checkpoint.write_json))
            patch.setattr(Path, "replace", dying(Path.replace))
            patch.setattr(Path, "rename", dying(Path.rename))
            patch.setattr(Path, "mkdir", dying(Path.mkdir))
            patch.setattr(shutil, "rmtree", dying(shutil.rmtree))
            try:
                save_checkpoint(folder, trained, replace(POSITION, step=6), HASH)
                finished = True
            except KilledError:
                finished = False
        position = load_checkpoint(folder, loaded, HASH)
        assert same(state_of(loaded), old if position.step == 4 else new)
        found.append(position.step)
        # And the next checkpoint clears away whatever was left lying about.
        save_checkpoint(folder, trained, replace(POSITION, step=8), HASH)
        assert sorted(path.name for path in folder.iterdir()) == ["last.json", "step-00000008"]
        if finished:
            break
    assert found == sorted(found)
    assert found[0] == 4
    assert found[-1] == 6
    assert len(found) > 12


def test_leftovers_of_a_kill_do_no_harm(tmp_path, trained):
    save_checkpoint(tmp_path, trained, POSITION, HASH)
    half = tmp_path / ".step-00000006.tmp"
    half.mkdir()
    (half / "model.safetensors").write_bytes(b"half")
    orphan = tmp_path / "step-00000006"  # renamed, but the pointer was not yet written
    orphan.mkdir()
    (orphan / "position.json").write_text("{")
    (tmp_path / ".last.json.123.tmp").write_text('{"checkp')
    assert load_checkpoint(tmp_path, trained, HASH).step == 4
    save_checkpoint(tmp_path, trained, replace(POSITION, step=6), HASH)
    assert load_checkpoint(tmp_path, trained, HASH).step == 6


def test_a_model_file_holds_the_method_and_its_metadata(tmp_path, trained):
    path = tmp_path / "model.safetensors"
    save_model(path, trained.average, {"epoch": "3"})
    tensors = load_file(path)
    assert tensors.keys() == trained.average.state_dict().keys()
    assert all(value.is_contiguous() for value in tensors.values())
    with torch.no_grad():
        trained.flat_average.values.zero_()
    load_module(trained.average, tensors)
    assert same(tensors, trained.average.state_dict())
    del tensors["prior"]
    with pytest.raises(DataError, match="prior"):
        load_module(trained.average, tensors)


def full_size_problem() -> Problem:
    """A stand-in for CIFAR-100 with an image for each known class and as many in the pool."""
    setting = get_setting("cifar100-55/50")
    known = np.array(setting.known_classes)
    labels = np.concatenate([known, known])
    part = LabelledImages(ArrayImages(np.zeros((110, 32, 32, 3), np.uint8)), labels)
    names = tuple(map(str, range(100)))
    split = Split(
        setting.name, 0, False, setting.known_classes, tuple(map(str, known)),
        np.arange(55), np.arange(0), np.arange(55, 110), np.arange(110), "test",
    )  # fmt: skip
    return Problem(setting, Dataset("cifar100", names, part, part), split)


@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
def test_files_of_the_full_network_stay_under_16_megabytes(tmp_path, tiny_stepper, optimiser):
    spec = make_spec("cifar100-55/50", "anedl", train={"optimiser": optimiser})
    assert spec.train.backbone == "wrn-28-2"
    stepper = tiny_stepper(spec, of=full_size_problem())
    selected = torch.arange(round(0.35 * 44_500))
    save_checkpoint(tmp_path, stepper, replace(POSITION, selected=selected), HASH)
    sizes = {path.name: path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()}
    parameters = sum(p.numel() for p in stepper.method.parameters())
    assert parameters > 1_466_320
    assert sizes["model.safetensors"] > 4 * parameters
    assert max(sizes.values()) < 16e6, sizes
