"""What is wrong with a method is told in its own words, not by what then breaks."""

import pytest

from anedl.errors import ConfigError

FILE = '''
from anedl.methods.anedl import Anedl
from anedl.methods.base import Selection, Source

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
'''


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Plain", "`loss` must return Losses, got dict"),
        ("Unlabelled", "exactly one part of a batch from the labelled images; its `wants` has 0"),
        ("Beyond", r"`select` named pool images \d+ to \d+, and the pool has 0 to 79"),
    ],
)
def test_a_mistake_in_a_method_is_told(tiny_spec, tiny_run, tmp_path, name, message):
    path = tmp_path / "mine.py"
    path.write_text(FILE)
    with pytest.raises(ConfigError, match=message):
        tiny_run(tiny_spec(f"{path}:{name}"), tmp_path / "run")
