"""What is wrong with a method is told in its own words, not by what then breaks."""

import pytest

from anedl.errors import ConfigError
from anedl.methods.base import Stage

FILE = '''
from dataclasses import replace

import torch

from anedl.methods.anedl import Anedl
from anedl.methods.base import Losses, Selection, Source, Stage, Want
from anedl.methods.supervised import Supervised
from anedl.views import View

class Plain(Anedl):
    """Its terms as they are."""

    def loss(self, batch, progress):
        return super().loss(batch, progress).terms

class Unlabelled(Anedl):
    """Without the labelled part."""

    def wants(self, stage):
        return {name: want for name, want in super().wants(stage).items() if name != "labelled"}

class Beyond(Anedl):
    """Selects images that are not there."""

    def select(self, outputs):
        return Selection(super().select(outputs).positions + len(outputs.logits))

class RawPositions(Anedl):
    def select(self, outputs):
        return super().select(outputs).positions

class RawMask(Anedl):
    def select(self, outputs):
        return outputs.score > outputs.score.median()

class Mask(Anedl):
    def select(self, outputs):
        return Selection(outputs.score > outputs.score.median())

class Forgetful(Anedl):
    def recall(self, outputs):
        self.remembered = len(outputs.logits)

class Ranked(Anedl):
    @property
    def selection_view(self):
        return "plain"

class LateSlip(Anedl):
    def wants(self, stage):
        wants = super().wants(stage)
        if stage is Stage.SELF_TRAIN:
            wants["pool"] = Want(Source.POOL, ("weakk",))
        return wants

class WithTerm(Supervised):
    """Cross-entropy, and another term."""

    def loss(self, batch, progress):
        losses = super().loss(batch, progress)
        return Losses({**losses.terms, "more": self.more(batch, losses.terms["ce"])})

class Vector(WithTerm):
    def more(self, batch, ce):
        return ce * torch.ones(4)

class Number(WithTerm):
    def more(self, batch, ce):
        return 0.5 * ce.item()

class Monitored(Supervised):
    def loss(self, batch, progress):
        losses = super().loss(batch, progress)
        return Losses(losses.terms, {"seen": 3})

class Bare(Supervised):
    def loss(self, batch, progress):
        return Losses(super().loss(batch, progress).terms["ce"])

class NoTerm(Supervised):
    def loss(self, batch, progress):
        return Losses({})

class Detached(Supervised):
    def loss(self, batch, progress):
        return Losses({"ce": super().loss(batch, progress).terms["ce"].detach()})

class Elsewhere(Supervised):
    """A gradient that leads to no parameter."""

    def loss(self, batch, progress):
        return Losses({"ce": torch.ones((), requires_grad=True) * 2})

class Centred(WithTerm):
    """Keeps a moving average."""

    def __init__(self, config, backbone, task):
        super().__init__(config, backbone, task)
        self.centre = torch.nn.Buffer(torch.zeros(()))

class Reassigned(Centred):
    def more(self, batch, ce):
        self.centre = 0.9 * self.centre + 0.1 * ce
        return (ce - self.centre).square()

class Replaced(Centred):
    def more(self, batch, ce):
        self.centre = (0.9 * self.centre + 0.1 * ce).detach()
        return (ce - self.centre).square()

class InPlace(Centred):
    def more(self, batch, ce):
        self.centre.mul_(0.9).add_(0.1 * ce)
        return (ce - self.centre).square()

class Rightly(Centred):
    def more(self, batch, ce):
        with torch.no_grad():
            self.centre.mul_(0.9).add_(0.1 * ce)
        return (ce - self.centre).square()

class AttributeInGraph(WithTerm):
    centre = 0.0

    def more(self, batch, ce):
        self.centre = 0.9 * self.centre + 0.1 * ce
        return (ce - self.centre).square()

class Wider(Supervised):
    """One class more, for outliers."""

    def outputs(self, images):
        found = super().outputs(images)
        return replace(found, logits=torch.cat([found.logits, found.score[:, None]], 1))

class Column(Supervised):
    def outputs(self, images):
        found = super().outputs(images)
        return replace(found, score=found.score[:, None])

class Further(Supervised):
    def outputs(self, images):
        found = super().outputs(images)
        return replace(found, others={"mean": found.score.mean()})

class Tuple(Supervised):
    def outputs(self, images):
        found = super().outputs(images)
        return found.features, found.logits, found.score
'''

IN_GRAPH = (
    r"`loss` leads back into the graph of an earlier step: .*\('centre'\) must be updated under"
)


@pytest.fixture
def mine(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(FILE)
    return path


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Plain", "`loss` must return Losses, got dict"),
        ("Vector", r"`loss`: term 'more' has the shape \(4,\) and must be a single number"),
        ("Number", "`loss`: term 'more' is of type float and must be a tensor"),
        ("Monitored", "`loss`: monitor 'seen' is of type int and must be a tensor"),
        ("Bare", "`loss` must give its terms by name, got Tensor"),
        ("NoTerm", "`loss` has no term"),
        ("Detached", "`loss` has no gradient: no parameter takes part"),
        ("Elsewhere", "`loss` has no gradient: no parameter takes part"),
        ("Reassigned", IN_GRAPH),
        ("InPlace", IN_GRAPH),
        ("Replaced", "`loss` has put another tensor in the place of its buffer 'centre'"),
        ("Unlabelled", "exactly one part of a batch from the labelled images; its `wants` has 0"),
        ("Beyond", r"`select` named pool images \d+ to \d+, and the pool has 0 to 79"),
        (
            "RawPositions",
            r"`select` must return a Selection or None, .* Selection\(positions\)",
        ),
        ("RawMask", r"`select` must return .*\(80,\) of torch.bool: .*Selection\(mask.nonzero"),
        ("Mask", r"`select` must give positions .* int64 .*torch.bool: .*Selection\(mask.nonzero"),
        ("Forgetful", "`recall` must return Outputs, got NoneType"),
        ("Ranked", "`selection_view`: 'plain' is no View: write View.PLAIN"),
        ("Wider", r"`outputs`: logits of \d+ images and 6 known classes .*\(\d+, 6\), got .* 7\)"),
        (
            "Column",
            r"`outputs`: score of (\d+) images .* must have .* \(\1,\), got \(\1, 1\)",
        ),
        ("Further", r"`outputs`: the score 'mean' .* got \(\)"),
        ("Tuple", r"`outputs` must return Outputs, got tuple: Outputs\(features, logits, score\)"),
    ],
)
def test_a_mistake_in_a_method_is_told(tiny_spec, tiny_run, tmp_path, mine, name, message):
    with pytest.raises(ConfigError, match=message):
        tiny_run(tiny_spec(f"{mine}:{name}"), tmp_path / "run")


def test_what_the_messages_ask_for_trains(tiny_spec, tiny_run, tmp_path, mine):
    tiny_run(tiny_spec(f"{mine}:Rightly", epochs=1), tmp_path / "run")


@pytest.mark.filterwarnings("ignore:the method's attribute 'centre'")
def test_an_attribute_that_leads_into_an_earlier_step_is_named(tiny_spec, tiny_stepper, mine):
    stepper = tiny_stepper(tiny_spec(f"{mine}:AttributeInGraph"))
    stepper.begin_epoch(Stage.PRETRAIN, 0, 0, None)
    stepper.take_many(1)
    with pytest.raises(ConfigError, match=IN_GRAPH):
        stepper.take_many(1)


def test_a_slip_in_the_second_stage_is_told_before_the_first(tiny_spec, tiny_stepper, mine):
    with pytest.raises(ConfigError, match="'weakk' is no View"):
        tiny_stepper(tiny_spec(f"{mine}:LateSlip"))
