from anedl.cli import main


def test_where_prints_the_given_root(tmp_path, capsys):
    assert main(["data", "where", "--root", str(tmp_path)]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path)


def test_the_environment_names_the_root(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("ANEDL_DATA", str(tmp_path))
    assert main(["data", "where"]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path)


def test_verify_says_what_is_here_and_what_is_not(tmp_path, capsys):
    assert main(["data", "verify", "--root", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "digits: as published" in printed
    assert "cifar100: not here" in printed


def test_verify_of_a_missing_set_fails_with_the_remedy(tmp_path, capsys):
    assert main(["data", "verify", "cifar100", "--root", str(tmp_path)]) == 1
    assert "anedl data fetch cifar100" in capsys.readouterr().out


def test_fetch_of_a_set_without_an_address_explains(tmp_path, capsys):
    assert main(["data", "fetch", "imagenet30", "--root", str(tmp_path)]) == 1
    assert "imagenet30" in capsys.readouterr().err


def test_an_unknown_data_set_suggests_the_nearest(tmp_path, capsys):
    assert main(["data", "fetch", "cifar-100", "--root", str(tmp_path)]) == 1
    assert "did you mean cifar100" in capsys.readouterr().err


def test_a_damaged_set_is_not_called_absent(tmp_path, capsys):
    folder = tmp_path / "cifar-100-binary"
    folder.mkdir()
    (folder / "train.bin").write_bytes(b"short")
    assert main(["data", "verify", "--root", str(tmp_path)]) == 1
    printed = capsys.readouterr().out
    assert "cifar100: not here" not in printed
    assert "cifar10: not here" in printed
    assert main(["doctor", "--data", str(tmp_path)]) == 0
    assert "damaged" in capsys.readouterr().out
