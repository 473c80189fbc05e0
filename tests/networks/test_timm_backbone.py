"""Models of timm, through a stand-in that answers as timm does where we rely on it."""

import sys
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from anedl.engine.model import load_model
from anedl.errors import ConfigError
from anedl.fit.flow import Wishes, fit
from anedl.networks import TimmBackbone, build_backbone, trained_on
from anedl.networks.encoder import ImageEncoder


class Convolutions(nn.Module):
    """Takes any size, has BatchNorm, and ends wider than `num_features` says."""

    num_features = 6

    def __init__(self, in_chans):
        super().__init__()
        self.stem = nn.Conv2d(in_chans, 6, 3, stride=2)
        self.bn = nn.BatchNorm2d(6)
        self.last = nn.Linear(6, 10)

    def forward(self, images):
        return self.last(self.bn(self.stem(images)).mean((2, 3)))


class Patches(nn.Module):
    """Takes one size only."""

    num_features = 4

    def __init__(self, in_chans, img_size):
        super().__init__()
        self.size = img_size
        self.project = nn.Conv2d(in_chans, 4, 4, stride=4)

    def forward(self, images):
        assert images.shape[-1] == self.size, f"expects images of {self.size}"
        return self.project(images).mean((2, 3))


@pytest.fixture
def calls(monkeypatch):
    """What `timm.create_model` is asked for."""
    made = []

    def create_model(model_name, pretrained=False, pretrained_cfg_overlay=None, **options):
        made.append({"name": model_name, "pretrained": pretrained,
                     "overlay": pretrained_cfg_overlay, **options})  # fmt: skip
        assert options.pop("num_classes") == 0
        if model_name == "convnet":
            return Convolutions(**options)
        if model_name == "patches":
            return Patches(**{"img_size": 224, **options})
        if model_name == "maps":
            return nn.Conv2d(options["in_chans"], 2, 1)
        raise RuntimeError(f"Unknown model ({model_name})")

    def get_pretrained_cfg(model_name):
        if model_name == "wrong.tag":
            raise RuntimeError("Invalid pretrained tag")
        if model_name not in ("convnet", "patches", "maps"):
            return None
        return SimpleNamespace(
            fixed_input_size=model_name == "patches", input_size=(3, 12, 12),
            mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.4),
        )  # fmt: skip

    timm = SimpleNamespace(create_model=create_model, get_pretrained_cfg=get_pretrained_cfg)
    monkeypatch.setitem(sys.modules, "timm", timm)
    return made


def test_without_timm_the_error_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(ConfigError, match="pip install timm"):
        build_backbone("timm:resnet50")


def test_the_width_is_measured_and_the_momentum_set(calls):
    trunk = build_backbone("timm:convnet", 3, bn_momentum=0.03, image_size=16)
    assert isinstance(trunk, TimmBackbone)
    assert trunk.feature_width == 10
    assert trunk.model.bn.momentum == 0.03
    assert trunk.training
    # The look that measured it left no trace in the statistics.
    assert trunk.model.bn.num_batches_tracked == 0
    assert trunk(torch.randn(2, 3, 16, 16)).shape == (2, 10)
    assert calls == [
        {"name": "convnet", "pretrained": False, "overlay": None, "num_classes": 0, "in_chans": 3}
    ]


def test_only_models_of_a_fixed_size_are_told_the_size(calls):
    trunk = build_backbone("timm:patches", 1, image_size=32)
    assert calls[0]["img_size"] == 32
    assert trunk(torch.zeros(2, 1, 32, 32)).shape == (2, 4)


def test_weights_are_timms_own_or_a_file(calls, tmp_path):
    weights = tmp_path / "my:weights.safetensors"
    weights.write_bytes(b"x")
    build_backbone("timm:convnet:pretrained")
    build_backbone(f"timm:convnet:{weights}")
    assert [(c["pretrained"], c["overlay"]) for c in calls] == [
        (True, None),
        (True, {"file": str(weights)}),
    ]
    with pytest.raises(ConfigError, match="there is no file 'nowhere"):
        build_backbone("timm:convnet:nowhere.pt")


def test_a_model_that_is_loaded_needs_no_pretrained_weights(calls):
    encoder = ImageEncoder("timm:convnet:gone.pt", (0.5,), (0.5,), 0.1, 16, load_weights=False)
    assert encoder.feature_width == 10
    assert not calls[0]["pretrained"]


def test_how_it_was_trained_is_asked_of_timm(calls):
    assert trained_on("timm:patches") is None
    assert trained_on("timm:patches:") is None
    assert trained_on("timm:nonsense:pretrained") is None
    assert trained_on("timm:wrong.tag:pretrained") is None
    trained = trained_on("timm:patches:pretrained")
    assert trained[:3] == (12, (0.4, 0.5, 0.6), (0.2, 0.3, 0.4))
    assert not calls


@pytest.mark.parametrize(
    ("name", "message"),
    [("timm:", "name a model"), ("timm:nonsense", "Unknown model"), ("timm:maps", "not one vector"),
     ("timm:convnet", "cannot take images of 2 pixels")],
)  # fmt: skip
def test_what_cannot_work_is_told(calls, name, message):
    with pytest.raises(ConfigError, match=message):
        build_backbone(name, 3, image_size=2 if "convnet" in name else 16)


def test_a_fit_trains_it_and_loads_it_again(calls, tmp_path, monkeypatch):
    from PIL import Image

    monkeypatch.setattr("anedl.fit.flow.write_report", lambda run: run)
    rng = torch.Generator().manual_seed(0)
    for part, count in (("labelled/dark", 6), ("labelled/light", 6), ("pile", 8)):
        (tmp_path / part).mkdir(parents=True)
        for number in range(count):
            pixels = torch.randint(0, 256, (12, 12, 3), generator=rng, dtype=torch.uint8).numpy()
            Image.fromarray(pixels).save(tmp_path / part / f"{number}.png")
    wishes = Wishes(epochs=2, epoch_steps=1, batch_size=2, workers=0, quiet=True,
                    backbone="timm:convnet:pretrained", frozen=False)  # fmt: skip
    fitted = fit(tmp_path / "labelled", tmp_path / "pile", tmp_path / "run", wishes, lambda _: None)
    assert len(fitted.triage.state) == 8
    assert any(call["pretrained"] for call in calls)
    calls.clear()
    assert load_model(tmp_path / "run").method is not None
    assert not any(call["pretrained"] for call in calls)
