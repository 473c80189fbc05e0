"""The methods by name, and methods from a user's file."""

from dataclasses import fields, replace

import pytest
import torch

from anedl.engine.config import TrainConfig
from anedl.engine.spec import make_spec
from anedl.errors import ConfigError
from anedl.methods.base import Method, MethodConfig, Outputs, Source, Stage, Task
from anedl.methods.catalogue import METHODS, get_method
from anedl.networks.encoder import ImageEncoder
from anedl.options import from_json, option_types

TASK = Task(classes=4, top_m=2, inlier_share=0.5)
EACH = pytest.mark.parametrize("name", METHODS)

USERS_FILE = '''
from dataclasses import dataclass
from anedl.methods.base import MethodConfig
from anedl.methods.supervised import Supervised

@dataclass(frozen=True)
class MineConfig(MethodConfig):
    """Mine."""

    strength: float = 0.5

class Mine(Supervised):
    """My own method.

    Second paragraph.
    """

    config_type = MineConfig

number = 3
'''


def build(name: str) -> Method:
    entry = get_method(name)
    torch.manual_seed(0)
    encoder = ImageEncoder("wrn-digits", (0.5,), (0.25,), bn_momentum=0.1)
    config = from_json(entry.method.config_type, dict(entry.options)).resolved(TASK)
    return entry.method(config, encoder, TASK)


@EACH
def test_an_entry_names_options_that_exist(name):
    entry = get_method(name)
    assert issubclass(entry.method.config_type, MethodConfig)
    assert set(entry.options) <= set(option_types(entry.method.config_type))
    assert set(entry.engine) <= set(option_types(TrainConfig))
    assert entry.summary
    for options in entry.by_dataset.values():
        assert set(options) <= set(option_types(entry.method.config_type))
    # One namespace on the command line: an option must not mean two things.
    assert not set(option_types(entry.method.config_type)) & set(option_types(TrainConfig))


@EACH
@pytest.mark.parametrize("stage", list(Stage))
def test_a_method_wants_one_labelled_part_by_that_name(name, stage):
    wants = build(name).wants(stage)
    labelled = [key for key, want in wants.items() if want.source is Source.LABELLED]
    assert labelled == ["labelled"]
    assert all(want.views and want.ratio >= 1 for want in wants.values())
    if stage is Stage.PRETRAIN:
        assert all(want.source is not Source.SELECTED for want in wants.values())


@EACH
def test_outputs_hold_one_row_an_image(name):
    method = build(name).eval()
    pixels = torch.randint(0, 256, (3, 1, 8, 8), dtype=torch.uint8)
    with torch.no_grad():
        outputs = method.outputs(pixels)
    assert isinstance(outputs, Outputs)
    assert outputs.logits.shape == (3, 4)
    assert outputs.score.shape == (3,)
    assert outputs.features.shape[0] == 3
    assert outputs.alpha is None or (outputs.alpha >= 1).all()


def test_the_paper_and_the_release_differ_in_the_engine_too():
    paper, released = METHODS["anedl"], METHODS["anedl-released"]
    assert paper.method is released.method
    assert paper.engine["weight_decay"] == 1e-4
    assert dict(released.engine) == {
        "weight_decay": 5e-4, "schedule": "cosine-7/16", "horizon": 2**19,
    }  # fmt: skip


def test_an_unknown_name_suggests_the_nearest():
    with pytest.raises(ConfigError, match="did you mean anedl"):
        get_method("anedel")


def test_a_method_from_a_file(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(USERS_FILE)
    entry = get_method(f"{path}:Mine")
    assert entry.method.__name__ == "Mine"
    assert entry.summary == "My own method."
    assert [f.name for f in fields(entry.method.config_type)] == ["strength"]


SUBCLASSES = '''
from dataclasses import dataclass
from anedl.methods.anedl import Anedl
from anedl.methods.anedl_config import AnedlConfig
from anedl.methods.base import Method
from anedl.methods.fixmatch import FixMatch
from anedl.methods.supervised import Supervised
from anedl.options import option

@dataclass(frozen=True)
class OtherConfig(AnedlConfig):
    """Mine."""

    kl_weight: float = option(0.5, "mine")
    strength: float = option(0.5, "mine, too")

class Same(Anedl):
    """Nothing new."""

class Released(Same):
    """Nothing new."""

    like = "anedl-released"

class Other(Anedl):
    """Other defaults."""

    config_type = OtherConfig
    engine = {"weight_decay": 0.25}
    like = "anedl-plus"

class Behind(Supervised):
    """Wants a trained trunk."""

    engine = {"frozen": True, "backbone": "efficientnet-lite0"}

class Lost(Anedl):
    """Like nothing there is."""

    like = "anedl-pluss"

class Unlike(FixMatch):
    """Like one it does not derive from."""

    like = "anedl"
'''


@pytest.fixture
def subclasses(tmp_path):
    path = tmp_path / "subclasses.py"
    path.write_text(SUBCLASSES)
    return path


@pytest.mark.parametrize(("name", "parent"), [("Same", "anedl"), ("Released", "anedl-released")])
@pytest.mark.parametrize("setting", ["digits", "cifar100-55/50", "cifar10-6/50"])
@pytest.mark.parametrize("budget", ["full", "fast"])
def test_a_subclass_has_the_defaults_of_its_parent(subclasses, name, parent, setting, budget):
    ours, theirs = (
        make_spec(setting, method, 1, budget=budget) for method in (f"{subclasses}:{name}", parent)
    )
    assert (ours.train, ours.options) == (theirs.train, theirs.options)


def test_what_a_subclass_states_goes_before_its_parents(subclasses):
    ours = make_spec("cifar100-55/50", f"{subclasses}:Other")
    plus = make_spec("cifar100-55/50", "anedl-plus")
    assert ours.train == replace(plus.train, weight_decay=0.25), "also where a data set has its own"
    assert ours.options.rotation_weight == plus.options.rotation_weight == 0.5
    assert ours.options.strength == 0.5
    on_digits = make_spec("digits", f"{subclasses}:Other").options
    assert (on_digits.kl_weight, on_digits.selection_quota) == (0.5, 0.5)


def test_a_subclass_has_what_its_parent_has_behind_a_frozen_trunk(subclasses):
    for setting in ("cifar100-55/50", "digits"):
        train = {"frozen": True, "backbone": "efficientnet-lite0"}
        ours, plus = (
            make_spec(setting, method, train=train).options
            for method in (f"{subclasses}:Other", "anedl-plus")
        )
        assert ours.selected_evidence == plus.selected_evidence
        assert ours.labelled_views == plus.labelled_views == ("weak", "strong")


def test_images_are_enlarged_for_a_trunk_that_a_class_freezes(subclasses):
    assert make_spec("cifar100-55/50", f"{subclasses}:Behind").train.frozen_side == 128


@pytest.mark.parametrize(
    ("name", "message"),
    [("Lost", "like: unknown method .*did you mean anedl-plus"), ("Unlike", "does not derive")],
)
def test_a_parent_that_is_none_is_told(subclasses, name, message):
    with pytest.raises(ConfigError, match=f"subclasses.py:{name}: .*{message}"):
        get_method(f"{subclasses}:{name}")


@pytest.mark.parametrize("name", ["Other", "number", "MineConfig", ""])
def test_a_file_without_that_method_is_told(tmp_path, name):
    path = tmp_path / "mine.py"
    path.write_text(USERS_FILE)
    with pytest.raises(ConfigError, match="no such subclass"):
        get_method(f"{path}:{name}")
    with pytest.raises(ConfigError, match="no such file"):
        get_method(f"{tmp_path / 'yours.py'}:Mine")


SLIPS = """
from dataclasses import dataclass, field
from anedl.methods.base import Method, MethodConfig
from anedl.methods.supervised import Supervised, SupervisedConfig

class Half(Method):
    def wants(self, stage):
        return {}

    def losss(self, batch, progress):
        return None

class NoConfig(Supervised):
    config_type = dict

class Instance(Supervised):
    config_type = SupervisedConfig()

class BareConfig(MethodConfig):
    strength: float = 0.5

class Bare(Supervised):
    config_type = BareConfig

@dataclass(frozen=True)
class OpenConfig(MethodConfig):
    strength: float

class Open(Supervised):
    config_type = OpenConfig
"""


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Half", "the class has no `loss` and no `outputs`"),
        ("NoConfig", "config_type must be a class that extends MethodConfig, got <class 'dict'>"),
        ("Instance", "config_type must be a class that extends MethodConfig, got SupervisedConfig"),
        ("Bare", "BareConfig holds options and is no dataclass: write @dataclass"),
        ("Open", "option 'strength' of OpenConfig needs a default value"),
    ],
)
def test_a_class_that_is_not_complete_is_told(tmp_path, name, message):
    path = tmp_path / "slips.py"
    path.write_text(SLIPS)
    with pytest.raises(ConfigError, match=f"method .*slips.py:{name}: .*{message}"):
        get_method(f"{path}:{name}")


def test_the_methods_cannot_be_changed_by_accident():
    with pytest.raises(TypeError):
        METHODS["mine"] = METHODS["anedl"]
