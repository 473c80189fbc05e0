"""A fit that is calibrated anew: by images that it has not seen, which it can tell."""

import numpy as np
import pytest
from PIL import Image

from anedl.errors import DataError
from anedl.export.calibrating import calibrate
from anedl.export.predictor import load


@pytest.fixture
def others(make_folders, tmp_path):
    """Images of the same classes that are none of the run's."""
    labelled, _ = make_folders(tmp_path / "others", labelled=20, known=0, strange=0, seed=9)
    return labelled


def test_images_of_the_run_say_nothing_of_new_ones(finished, folders, others, tmp_path):
    run, said = finished[0].folder, []
    labelled = folders[0]
    made = calibrate(
        run, [others, labelled], out=tmp_path / "out", device="cpu", workers=0, say=said.append
    )
    expected = np.sort(
        load(run, device="cpu", level=0.2).predict(sorted(others.rglob("*.png"))).inlier_score
    )
    assert made.calibration.fresh.tolist() == expected.tolist()
    count = len(list(labelled.rglob("*.png")))
    assert any(f"{count} of the images, or copies of them, are the run's own" in s for s in said)
    with pytest.raises(DataError, match="were there when the model was trained"):
        calibrate(run, [labelled], out=tmp_path / "none", device="cpu", workers=0)
    assert not (tmp_path / "none").exists()


def test_a_copy_in_another_format_is_known_too(finished, folders, others, tmp_path):
    one = next(folders[0].rglob("*.png"))
    Image.open(one).resize((24, 24)).save(others / "bigger.bmp")
    said = []
    calibrate(
        finished[0].folder, [others], out=tmp_path / "out", device="cpu", workers=0, say=said.append
    )
    assert any("1 of the images" in line for line in said)


def test_what_was_familiar_stays_so(finished, others, tmp_path):
    run = finished[0].folder
    calibrate(run, [others], out=tmp_path / "out", device="cpu", workers=0)
    here, there = (load(folder, device="cpu", level=0.2) for folder in (run, tmp_path / "out"))
    images = sorted(others.rglob("*.png"))
    assert there.predict(images).familiarity.tolist() == here.predict(images).familiarity.tolist()
