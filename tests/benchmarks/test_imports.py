"""Every benchmark finds what it imports: most are run by hand alone."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = sorted((Path(__file__).parents[2] / "benchmarks").glob("*.py"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_benchmark_can_be_imported(script):
    # In a process of its own, where the script's folder comes first, as when it is run.
    command = [sys.executable, "-c", f"import {script.stem}"]
    done = subprocess.run(command, cwd=script.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
