"""A run keeps the file of a user's method, and is read with it whatever becomes of that file."""

import hashlib
import json
import sys

import pytest
import torch

from anedl.engine.model import load_model
from anedl.engine.spec import method_begun_with, read_spec, read_spec_to_train
from anedl.errors import ConfigError, Notice

USERS_FILE = '''
from anedl.methods.supervised import Supervised

class Mine(Supervised):
    """As it was."""

    def outputs(self, images):
        found = super().outputs(images)
        return type(found)(found.features, found.logits, found.score + 7)
'''
CHANGED = USERS_FILE.replace("+ 7", "- 7").replace("As it was", "As it is")
# A trace, should anybody run it.
TRAP = "from pathlib import Path\nPath(__file__).with_suffix('.ran').touch()\n" + CHANGED


@pytest.fixture(autouse=True)
def as_in_another_process():
    """Forget the files that were loaded, before and after."""

    def forget():
        for name in [name for name in sys.modules if name.startswith("anedl_user_method_")]:
            del sys.modules[name]

    forget()
    yield forget
    forget()


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "there" / "mine.py"
    path.parent.mkdir()
    path.write_text(USERS_FILE)
    return path


@pytest.fixture
def run(file, tiny_spec, tiny_run, tmp_path, as_in_another_process):
    tiny_run(tiny_spec(f"{file}:Mine"), tmp_path / "run")
    as_in_another_process()
    return tmp_path / "run"


def test_a_copy_from_elsewhere_runs_by_consent_alone(run, file, monkeypatch, tmp_path):
    file.unlink()
    monkeypatch.setattr("anedl.engine.kept_method.cache_folder", lambda: tmp_path / "another")
    with pytest.raises(ConfigError, match="not trained with on this machine"):
        read_spec(run / "config.json")
    sha256 = hashlib.sha256((run / "method.py").read_bytes()).hexdigest()
    for refused in ("1", sha256[:7], "0" * 64):
        monkeypatch.setenv("ANEDL_RUN_METHOD", refused)
        with pytest.raises(ConfigError, match=f"ANEDL_RUN_METHOD={sha256[:12]}"):
            read_spec(run / "config.json")
    monkeypatch.setenv("ANEDL_RUN_METHOD", sha256[:12])
    with pytest.warns(Notice, match="is gone"):
        assert read_spec(run / "config.json").method_sha256 == sha256


def scores_of(folder):
    """What the model says of a few images."""
    images = torch.arange(3 * 64, dtype=torch.uint8).reshape(3, 1, 8, 8)
    with torch.no_grad():
        return load_model(folder, device="cpu").method.outputs(images).score


def test_the_file_is_kept_before_the_first_step(file, tiny_spec, tiny_run, tmp_path):
    failing = USERS_FILE + "\n    def loss(self, batch, progress):\n        raise RuntimeError\n"
    file.write_text(failing)
    with pytest.raises(RuntimeError):
        tiny_run(tiny_spec(f"{file}:Mine"), tmp_path / "run")
    kept = (tmp_path / "run" / "method.py").read_bytes()
    assert kept == failing.encode()
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert hashlib.sha256(kept).hexdigest() == config["method_sha256"]


def test_what_was_loaded_is_trained_and_kept_though_the_file_has_changed(
    file, tiny_spec, tiny_run, tmp_path
):
    spec = tiny_spec(f"{file}:Mine")
    file.write_text(CHANGED)
    tiny_run(spec, tmp_path / "run")
    assert (tmp_path / "run" / "method.py").read_text() == USERS_FILE
    with pytest.warns(Notice):
        score = scores_of(tmp_path / "run")
    assert (score > 6).all(), "trained and judged by the file as it was"


def test_a_method_of_the_package_keeps_no_file(tiny_spec, tiny_run, tmp_path):
    tiny_run(tiny_spec("supervised"), tmp_path)
    assert not (tmp_path / "method.py").exists()


def test_a_file_that_has_not_changed_is_used_without_a_word(run, file):
    assert (scores_of(run) > 6).all()
    assert read_spec_to_train(run / "config.json").entry.source == file


@pytest.mark.parametrize("fate", ["has changed since this run", "is gone"])
def test_the_copy_takes_the_place_of_a_file_that_is_another_or_gone(
    run, file, fate, as_in_another_process
):
    before = scores_of(run)
    as_in_another_process()
    if fate == "is gone":
        file.unlink()
    else:
        file.write_text(TRAP)
    with pytest.warns(Notice) as told:
        found = scores_of(run)
    assert torch.equal(found, before)
    assert [str(one.message) for one in told] == [
        f"{file} {fate}: using the copy in {run / 'method.py'}"
    ]
    with pytest.warns(Notice, match="training with the copy in") as told:
        spec = read_spec_to_train(run / "config.json")
    assert ("a new folder" in str(told[0].message)) == (fate != "is gone")
    assert spec.entry.summary == "As it was."
    assert spec.digest == json.loads((run / "results.json").read_text())["config_hash"]
    assert spec.method == f"{file}:Mine", "where the file lay stays recorded"
    assert not file.with_suffix(".ran").exists()


def test_a_copy_of_other_bytes_is_not_run(run, file):
    file.unlink()
    (run / "method.py").write_text(TRAP)
    with pytest.raises(ConfigError, match=r"method\.py: not the file .* so it is not run; restore"):
        read_spec(run / "config.json")
    assert not list(file.parent.glob("*.ran"))
    assert not list(run.glob("*.ran"))
    file.write_text(USERS_FILE)
    assert (scores_of(run) > 6).all(), "nobody asks for the copy where the file is as it was"


def test_a_run_without_a_copy_is_read_as_before(run, file):
    (run / "method.py").unlink()
    file.write_text(CHANGED)
    with pytest.warns(UserWarning, match=r"config\.json: the method's file .* has changed since"):
        assert (scores_of(run) < 0).all()
    with pytest.raises(ConfigError, match="restore the file"):
        read_spec_to_train(run / "config.json")
    file.unlink()
    with pytest.raises(ConfigError, match="no such file"):
        read_spec(run / "config.json")


def test_a_run_that_was_cut_goes_on_with_its_copy(
    file, tiny_spec, tiny_run, tmp_path, as_in_another_process
):
    class CutError(Exception):
        pass

    def cut(_step):
        raise CutError

    spec = tiny_spec(f"{file}:Mine")
    tiny_run(spec, tmp_path / "whole")
    with pytest.raises(CutError):
        tiny_run(spec, tmp_path / "run", after_save=cut)
    config = (tmp_path / "run" / "config.json").read_text()
    file.write_text(TRAP)
    as_in_another_process()
    with pytest.warns(Notice, match="training with the copy"):
        spec = read_spec_to_train(tmp_path / "run" / "config.json")
    tiny_run(spec, tmp_path / "run", resume=True)
    for name in ("model.safetensors", "method.py"):
        whole = (tmp_path / "whole" / name).read_bytes()
        assert (tmp_path / "run" / name).read_bytes() == whole
    assert (tmp_path / "run" / "config.json").read_text() == config, "what differs is as it was"
    assert not file.with_suffix(".ran").exists()


def test_only_a_run_of_that_name_says_with_what_it_began(run, file, tmp_path):
    assert method_begun_with(tmp_path / "nowhere", f"{file}:Mine") is None
    assert method_begun_with(run, "supervised") is None
    assert method_begun_with(run, f"{file}:Mine").summary == "As it was."


def test_somebodys_own_file_of_that_name_is_not_overwritten(file, tiny_spec, tiny_run, tmp_path):
    (tmp_path / "run").mkdir()
    own = tmp_path / "run" / "method.py"
    own.write_text("print('mine')\n")
    with pytest.raises(ConfigError, match=r"run/method\.py: .* this is another file"):
        tiny_run(tiny_spec(f"{file}:Mine"), tmp_path / "run")
    assert own.read_text() == "print('mine')\n"
    assert [path.name for path in own.parent.iterdir()] == ["method.py"]
    own.write_text(USERS_FILE)
    tiny_run(tiny_spec(f"{own}:Mine"), tmp_path / "run")
    assert own.read_text() == USERS_FILE


def test_the_copy_finds_what_lies_beside_the_file(
    file, tiny_spec, tiny_run, tmp_path, as_in_another_process
):
    (file.parent / "helper_of_a_copy.py").write_text("SHIFT = 7\n")
    file.write_text("import helper_of_a_copy\n" + USERS_FILE.replace("7", "helper_of_a_copy.SHIFT"))
    tiny_run(tiny_spec(f"{file}:Mine"), tmp_path / "run")
    as_in_another_process()
    del sys.modules["helper_of_a_copy"]
    file.unlink()
    with pytest.warns(Notice):
        assert (scores_of(tmp_path / "run") > 6).all()
