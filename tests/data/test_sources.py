from pathlib import Path

import pytest

from anedl.data.sources import SOURCES, data_root, load_dataset
from anedl.errors import ConfigError, DataError


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.delenv("ANEDL_DATA", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "home"


def test_root_is_looked_for_in_order(home, monkeypatch):
    assert data_root() == home / ".cache" / "anedl"
    Path("data").mkdir()
    assert data_root() == Path("data")
    monkeypatch.setenv("ANEDL_DATA", "~/sets")
    assert data_root() == home / "sets"
    assert data_root(Path("given")) == Path("given")


def test_empty_variable_counts_as_unset(home, monkeypatch):
    monkeypatch.setenv("ANEDL_DATA", "")
    assert data_root() == home / ".cache" / "anedl"


def test_dataset_is_loaded_by_name(tmp_path):
    assert load_dataset("digits").name == "digits"
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "1.png").touch()
    assert load_dataset("folder", tmp_path).class_names == ("a",)


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "imagenet30", "miniimagenet"])
def test_absent_set_names_where_it_looked_and_the_remedy(home, name):
    with pytest.raises(DataError, match=rf"anedl data fetch {name}`") as caught:
        load_dataset(name)
    assert str(home / ".cache" / "anedl") in str(caught.value)


def test_unknown_name_suggests():
    with pytest.raises(ConfigError, match=r"unknown data set 'cifar-100': did you mean cifar100"):
        load_dataset("cifar-100")


def test_folder_must_be_named():
    assert "folder" in SOURCES
    with pytest.raises(ConfigError, match="needs the folder of your images"):
        load_dataset("folder")
