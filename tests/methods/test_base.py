"""What a method says of itself is checked where it says it."""

import pytest

from anedl.errors import ConfigError
from anedl.methods.base import Source, Want
from anedl.views import View


@pytest.mark.parametrize(
    ("want", "message"),
    [
        ((Source.POOL, ("weakk",)), "'weakk' is no View: write View.PLAIN, .* or View.STRONG"),
        ((Source.POOL, (View.WEAK, "strong")), "'strong' is no View"),
        ((Source.LABELLED, View.WEAK), "a tuple of views, such as .*got <View.WEAK"),
        ((Source.LABELLED, "weak"), "a tuple of views, such as .*got 'weak'"),
        ((Source.LABELLED, ()), "a tuple of views"),
        (("poool", (View.WEAK,)), "'poool' is no Source: write .*Source.POOL"),
        (("selected", (View.WEAK,)), "'selected' is no Source"),
        ((Source.POOL, (View.WEAK,), 0), "ratio of 1, 2 … .* got 0"),
        ((Source.POOL, (View.WEAK,), 1.5), "ratio of 1, 2 … .* got 1.5"),
    ],
)
def test_a_want_that_would_be_taken_for_another_is_refused(want, message):
    with pytest.raises(ConfigError, match=f"`wants`: .*{message}"):
        Want(*want)
