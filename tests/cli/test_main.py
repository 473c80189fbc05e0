import json
import os
import subprocess
import sys

import pytest

from anedl import __version__
from anedl.cli import COMMANDS, main


def test_settings_of_other_counts_are_shown_before_they_are_trained(capsys):
    assert main(["settings", "cifar100-20/4", "digits", "--json"]) == 0
    mine, digits = json.loads(capsys.readouterr().out)
    assert mine["setting"] == "cifar100-20/4"
    assert (mine["labelled"], mine["pool_outliers"]) == (80, 40_000)
    assert digits["setting"] == "digits"
    assert main(["settings", "cifar100-21/4"]) == 1
    assert "in steps of 5" in capsys.readouterr().err


def test_help_names_every_command(capsys):
    with pytest.raises(SystemExit) as exit_info:
        main(["--help"])
    assert exit_info.value.code == 0
    printed = capsys.readouterr().out
    for name, summary in COMMANDS.items():
        assert name in printed
        assert summary in printed


def test_version(capsys):
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out.strip() == f"anedl {__version__}"


def test_no_command_prints_help_and_is_wrong_usage(capsys):
    assert main([]) == 2
    assert "commands:" in capsys.readouterr().out


def test_an_unknown_command_suggests_the_nearest(capsys):
    assert main(["dat"]) == 2
    assert "did you mean data" in capsys.readouterr().err


def test_an_unknown_option_suggests_the_nearest(capsys):
    with pytest.raises(SystemExit) as exit_info:
        main(["train", "digits", "--method", "anedl", "--lamda-p", "3", "--epochs=1", "--zzz"])
    assert exit_info.value.code == 2
    told = capsys.readouterr().err
    assert "unrecognized arguments: --lamda-p 3 --zzz (did you mean --lambda-p" in told


def test_an_unknown_option_like_no_other_is_just_named(capsys):
    with pytest.raises(SystemExit):
        main(["methods", "--zzz"])
    assert capsys.readouterr().err.endswith("unrecognized arguments: --zzz\n")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name, capsys):
    with pytest.raises(SystemExit) as exit_info:
        main([name, "--help"])
    assert exit_info.value.code == 0
    assert f"usage: anedl {name}" in capsys.readouterr().out


def test_python_m_anedl_is_the_command():
    result = subprocess.run(
        [sys.executable, "-m", "anedl", "settings", "--json"], capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    rows = {row["setting"]: row for row in json.loads(result.stdout)}
    assert rows["cifar100-55/50"]["pool_inliers"] == 22_000
    assert rows["cifar100-55/50"]["pool_outliers"] == 22_500


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        (
            ["fit", "labelled", "pile", "-o", "runs/mine"],
            "; the same command with --resume goes on",
        ),
        (["demo"], "; call it again to go on"),
        (["predict", "runs/mine", "new"], ""),
    ],
)
@pytest.mark.parametrize(("raised", "status"), [(KeyboardInterrupt(), 130), (SystemExit(143), 143)])
def test_what_is_stopped_says_how_to_go_on_where_one_can(
    words, advice, raised, status, capsys, monkeypatch
):
    """By Ctrl-C, or by SIGTERM once the training has saved."""

    def interrupted(_arguments):
        raise raised

    monkeypatch.setattr(f"anedl.cli.{words[0]}.run", interrupted)
    assert main(words) == status
    assert capsys.readouterr().err == f"anedl: interrupted{advice}\n"


def test_names_that_the_terminal_cannot_say_are_told_in_a_line():
    """A locale without letters, as cron and bare containers have it."""
    code = (
        "import pathlib, anedl.cli.data as data\n"
        "data.run = lambda _: pathlib.Path('caf\\u00e9').stat()\n"
        "from anedl.cli import main\n"
        "raise SystemExit(main(['data', 'where']))"
    )
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    result = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **plain}, capture_output=True, text=True
    )
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == (
        "anedl: this terminal's encoding (ascii) cannot name the files here, such as caf\\xe9: set "
        "PYTHONUTF8=1\n"
    )


def test_a_reader_that_leaves_early_is_no_error():
    command = f"{sys.executable} -m anedl settings | head -1"
    result = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert result.stderr == ""
