"""The demo, whole, on two seeds: the command a newcomer runs first."""

import json

import pytest

from anedl.cli import main
from anedl.presets.demo import demo_table


def fake_runs(folder, figures):
    runs = {}
    for method, rows in figures.items():
        runs[method] = []
        for seed, (error, own, softmax) in enumerate(rows):
            run = folder / f"{method}-{seed}"
            run.mkdir()
            by_score = {"score": {"auroc": own}, "max_softmax": {"auroc": softmax}}
            test = {"error": error, "by_score": by_score}
            (run / "results.json").write_text(json.dumps({"last": {"test": test}}))
            runs[method].append(run)
    return runs


def test_the_table_shows_means_deviations_and_paired_differences(tmp_path):
    runs = fake_runs(
        tmp_path,
        {
            "anedl-plus": [(0.02, 0.90, 0.91), (0.04, 0.94, 0.93)],
            "supervised": [(0.07, 0.80, 0.80), (0.07, 0.90, 0.90)],
        },
    )
    table = demo_table(runs)
    assert "3.0 ± 1.4" in table  # of 2 and 4: the sample deviation is √2
    assert "92.0 ± 2.8" in table
    # Differences of error −5 and −3: mean −4, t(0.975; 1) = 12.706, half-width 12.706·√2/√2.
    assert "-4.0 [-16.7, +8.7]" in table


@pytest.mark.long
def test_demo_from_the_command_line(tmp_path, capsys):
    out = tmp_path / "demo"
    assert main(["demo", "--seeds", "0", "1", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "difference, 95 % interval" in printed
    assert (out / "report.html").stat().st_size > 100_000
    for method in ("anedl-plus", "supervised"):
        results = json.loads((out / f"{method}-seed0" / "results.json").read_text())
        assert results["last"]["test"]["error"] < 0.25
    # A second call finds everything done and only writes the report again.
    assert main(["demo", "--seeds", "0", "1", "--out", str(out)]) == 0
