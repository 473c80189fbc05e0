import hashlib
import random
import socket

import pytest

from anedl.data.download import download
from anedl.errors import DataError

BODY = random.Random(0).randbytes(300_000)
MD5 = hashlib.md5(BODY).hexdigest()


@pytest.fixture
def get(file_server, tmp_path):
    """Download `file` from the server; `get.waits` and `get.steps` say what happened."""
    file_server.files["file"] = BODY

    def run(*names):
        urls = [f"{file_server.url}/{name}" for name in names or ("file",)]
        run.waits, run.steps = [], []
        download(urls, MD5, run.part, lambda *step: run.steps.append(step), run.waits.append)

    run.part = tmp_path / "file.part"
    return run


def test_file_arrives_with_progress(get):
    get()
    assert get.part.read_bytes() == BODY
    assert get.waits == []
    assert get.steps[0] == (0, 300_000)
    assert get.steps[-1] == (300_000, 300_000)
    assert [done for done, _ in get.steps] == sorted(done for done, _ in get.steps)


def test_broken_transfer_goes_on_where_it_stopped(get, file_server):
    file_server.behave(stop_after=100_000)
    file_server.behave(stop_after=50_000)
    get()
    assert get.part.read_bytes() == BODY
    assert file_server.ranges == [None, "bytes=100000-", "bytes=150000-"]
    assert (150_000, 300_000) in get.steps


def test_part_of_an_earlier_run_is_kept(get, file_server):
    get.part.write_bytes(BODY[:123_456])
    get()
    assert get.part.read_bytes() == BODY
    assert file_server.ranges == ["bytes=123456-"]
    assert get.steps[0] == (123_456, 300_000)


def test_complete_part_needs_no_server(get, file_server):
    get.part.write_bytes(BODY)
    get()
    assert file_server.ranges == []


def test_server_that_ignores_range_starts_again(get, file_server):
    get.part.write_bytes(BODY[:1000])
    file_server.behave(honours_range=False)
    get()
    assert get.part.read_bytes() == BODY
    assert file_server.ranges == ["bytes=1000-"]


def test_server_that_ignores_range_and_breaks_off_is_given_up(get, file_server):
    for _ in range(20):
        file_server.behave(honours_range=False, stop_after=1000)
    with pytest.raises(DataError, match="broke off after 1,000 of 300,000 bytes"):
        get()
    assert len(file_server.ranges) == 5


def test_server_that_answers_another_range_is_not_believed(get, file_server):
    get.part.write_bytes(BODY[:1000])
    file_server.behave(shift=10)
    get()
    assert get.part.read_bytes() == BODY
    assert file_server.ranges == ["bytes=1000-", None]


@pytest.mark.parametrize("extra", [0, 5000])
def test_part_that_is_too_long_is_thrown_away(get, file_server, extra):
    get.part.write_bytes(bytes(300_000 + extra))
    get()
    assert get.part.read_bytes() == BODY
    assert file_server.ranges == [f"bytes={300_000 + extra}-", None]


def test_file_that_changed_meanwhile_is_fetched_whole(get, file_server):
    get.part.write_bytes(b"the beginning of an older file")
    get()
    assert get.part.read_bytes() == BODY
    assert file_server.ranges == ["bytes=30-", None]


def test_wrong_file_is_deleted_and_both_checksums_said(get, file_server):
    file_server.files["file"] = b"<html>Sign in to the network</html>"
    with pytest.raises(DataError, match="wrong file") as caught:
        get()
    assert MD5 in str(caught.value)
    assert hashlib.md5(file_server.files["file"]).hexdigest() in str(caught.value)
    assert not get.part.exists()
    assert len(file_server.ranges) == 1


def test_length_need_not_be_told(get, file_server):
    file_server.behave(tells_length=False)
    get()
    assert get.part.read_bytes() == BODY
    assert get.steps[-1] == (300_000, None)


def test_busy_server_is_asked_again_with_growing_waits(get, file_server):
    for status in (503, 429, 500):
        file_server.behave(status=status)
    get()
    assert get.part.read_bytes() == BODY
    assert get.waits == [1.0, 2.0, 4.0]


def test_server_that_stays_busy_is_given_up(get, file_server):
    for _ in range(10):
        file_server.behave(status=503)
    with pytest.raises(DataError, match=r"the server answers 503 .*\n.*run the command again"):
        get()
    assert len(file_server.ranges) == 4


def test_next_address_is_tried_when_one_is_gone(get, file_server):
    get("moved", "file")
    assert get.part.read_bytes() == BODY
    assert get.waits == []
    assert len(file_server.ranges) == 2


def test_every_address_that_failed_is_named(get, file_server, tmp_path):
    with pytest.raises(DataError) as caught:
        get("moved", "away")
    message = str(caught.value)
    assert f"{file_server.url}/moved: the server answers 404" in message
    assert f"{file_server.url}/away: the server answers 404" in message
    assert f"put it at {tmp_path / 'file'}" in message


def test_no_connection_is_said_plainly(tmp_path, file_server):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/file"
    waits = []
    with pytest.raises(DataError, match=r"no connection \(.*refused"):
        download([url], MD5, tmp_path / "p.part", lambda *_: None, waits.append)
    assert waits == [1.0, 2.0, 4.0]


def test_unknown_host_is_not_asked_twice(tmp_path, monkeypatch):
    def offline(*_, **__):
        raise socket.gaierror(-2, "Name or service not known")

    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(socket, "getaddrinfo", offline)
    waits = []
    with pytest.raises(DataError, match=r"its name is not known here; is there a network\?"):
        download(
            ["http://nowhere.invalid/file"], MD5, tmp_path / "p", lambda *_: None, waits.append
        )
    assert waits == []
