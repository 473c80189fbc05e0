"""The built wheel works in an environment that holds nothing but what it asks for."""

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def run(*command, **kwargs):
    result = subprocess.run(list(map(str, command)), capture_output=True, text=True, **kwargs)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.mark.long
def test_wheel_installs_in_an_empty_environment_and_runs(tmp_path):
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation",
        "--wheel-dir", tmp_path, ROOT)  # fmt: skip
    (wheel,) = tmp_path.glob("anedl-*.whl")
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env" / "bin" / "python"
    pins = (ROOT / "constraints.txt").read_text().splitlines()
    (torch_pin,) = [line for line in pins if line.startswith("torch==")]
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    run(*pip, torch_pin)
    run(*pip, "--constraint", ROOT / "constraints.txt", wheel)

    # Away from the checkout and without its environment, so that only the wheel can answer.
    clean = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    elsewhere = {"cwd": tmp_path, "env": clean}
    anedl = tmp_path / "env" / "bin" / "anedl"
    assert run(anedl, "--version", **elsewhere).startswith("anedl ")
    assert "cifar100-55/50" in run(anedl, "settings", **elsewhere)
    assert "digits: as published" in run(anedl, "data", "verify", "digits", **elsewhere)

    # Neither the drawing packages nor TensorBoard are there: a run must do without them.
    lengths = ["--epochs", "2", "--epoch-steps", "2", "--pretrain-epochs", "1"]
    printed = run(python, "-m", "anedl", "train", "digits", *lengths, "--out", "run", **elsewhere)
    assert "last epoch" in printed
    assert (tmp_path / "run" / "results.json").exists()
    assert not (tmp_path / "run" / "report.html").exists()
    assert "missing" in run(anedl, "doctor", **elsewhere)
