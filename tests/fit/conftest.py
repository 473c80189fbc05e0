"""Small folders of drawings that a network tells apart in a few steps."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from anedl.fit.flow import Wishes, fit

SHORT = {"epochs": 3, "epoch_steps": 4, "batch_size": 8, "workers": 0, "quiet": True}
CLASSES = ("bars", "rows", "spots")


def drawing(kind, rng, side=12):
    """Stripes across, stripes down or spots, with noise, (side, side, 3) uint8."""
    across, down = np.meshgrid(np.arange(side), np.arange(side))
    phase, period = rng.uniform(0, 6), rng.uniform(3, 5)
    waves = {
        "bars": np.sin(2 * np.pi * across / period + phase),
        "rows": np.sin(2 * np.pi * down / period + phase),
        "spots": np.sin(2 * np.pi * across / period + phase) * np.sin(2 * np.pi * down / period),
        "strange": np.where(rng.random((side, side)) < 0.5, -1.0, 1.0),
    }
    grey = 128 + 90 * waves[kind]
    return np.clip(grey[..., None] + rng.normal(0, 25, (side, side, 3)), 0, 255).astype(np.uint8)


def write(path, pixels):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


def folders_below(root, labelled=12, known=24, strange=16, side=12, seed=0):
    """labelled/<class>/ and pile/ below `root`."""
    rng = np.random.default_rng(seed)
    for kind in CLASSES:
        for number in range(labelled):
            write(root / "labelled" / kind / f"{number}.png", drawing(kind, rng, side))
    for number in range(known):
        kind = CLASSES[number % len(CLASSES)]
        write(root / "pile" / f"{kind}-{number}.png", drawing(kind, rng, side))
    for number in range(strange):
        write(root / "pile" / f"strange-{number}.png", drawing("strange", rng, side))
    return root / "labelled", root / "pile"


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    return folders_below(tmp_path_factory.mktemp("images"))


@pytest.fixture(scope="session")
def make_folders():
    return folders_below


@pytest.fixture(scope="session")
def short():
    """Wishes for a run of seconds."""
    return dict(SHORT)


@pytest.fixture
def no_pages(monkeypatch):
    """Drawing a report takes longer than all the rest."""
    monkeypatch.setattr("anedl.fit.flow.write_report", lambda run: run / "report.html")


@pytest.fixture(scope="session")
def finished(folders, tmp_path_factory):
    """A run that nobody may change."""
    said = []
    run = tmp_path_factory.mktemp("finished") / "run"
    return fit(*folders, run, Wishes(**SHORT), said.append), said


@pytest.fixture
def copied(finished, tmp_path) -> Path:
    """A copy of the finished run, at another place."""
    run = tmp_path / "run"
    shutil.copytree(finished[0].folder, run)
    return run
