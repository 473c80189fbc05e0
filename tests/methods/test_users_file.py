"""What a user's file can import, and what that leaves behind."""

import sys

import pytest

from anedl.errors import ConfigError
from anedl.methods.catalogue import get_method

HELPED = """
import {helper}
from anedl.methods.supervised import Supervised

class Mine(Supervised):
    share = {helper}.SHARE
"""


@pytest.fixture
def written(tmp_path):
    """Write a file with a helper beside it, and name the method."""

    def write(folder, helper, share, package=False):
        beside = tmp_path / folder / (f"{helper}/__init__.py" if package else f"{helper}.py")
        beside.parent.mkdir(parents=True)
        beside.write_text(f"SHARE = {share}\n")
        file = tmp_path / folder / "mine.py"
        file.write_text(HELPED.format(helper=helper) + f"# of {folder}\n")
        return f"{file}:Mine"

    return write


@pytest.mark.parametrize("package", [False, True])
def test_what_lies_beside_a_file_can_be_imported(written, package):
    name = written("there", f"helper_of_a_test_{package}".lower(), 0.25, package)
    before = list(sys.path)
    assert get_method(name).method.share == 0.25
    assert sys.path == before


def test_a_file_that_fails_leaves_the_path_as_it_was(tmp_path):
    (tmp_path / "mine.py").write_text("import there_is_no_such_helper\n")
    before = list(sys.path)
    with pytest.raises(ConfigError, match=r"does not load: No module named 'there_is_no_such"):
        get_method(f"{tmp_path / 'mine.py'}:Mine")
    assert sys.path == before


def test_what_a_file_puts_in_the_path_itself_stays(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "mine.py").write_text(
        f"import sys\nsys.path.append({str(tmp_path / 'lib')!r})\n"
        "from anedl.methods.supervised import Supervised as Mine\n"
    )
    before = list(sys.path)
    get_method(f"{tmp_path / 'mine.py'}:Mine")
    assert sys.path == [*before, str(tmp_path / "lib")]


def test_two_methods_do_not_share_a_helper_by_mistake(written):
    one, other = (written(folder, "helper_of_two", share) for folder, share in (("a", 1), ("b", 2)))
    assert get_method(one).method.share == 1
    with pytest.raises(ConfigError, match=r"b/helper_of_two\.py and, .*a/helper_of_two\.py: give"):
        get_method(other)
    assert get_method(written("c", "helper_of_the_third", 3)).method.share == 3
