"""The server answers its own page and no one else, and reaches the run's images only."""

import io
import json
import socket
import stat
import sys

import numpy as np
import pytest
from PIL import Image

from anedl.cli import main
from anedl.fit.decisions import carry_over
from anedl.intake.decided import Decided, write_decided
from anedl.review.address import LOOPBACK, listen
from anedl.review.decisions import DecisionLog, read_labels
from anedl.triage.table import read_table

FOREIGN = {"Origin": "http://evil.example"}


def decision(server, **changes):
    pile = server.json("state")["pile"]
    return {"pile": pile, "at": [1], "do": "unknown", "key": "t:1", "seen": 0} | changes


def test_the_page_and_all_it_needs_is_there(shared):
    status, headers, page = shared.ask("")
    assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert b"//" not in page.replace(b"<!DOCTYPE html>", b"")  # nothing from elsewhere
    for name in ("page.js", "page.css", "grid.js", "wire.js", "icon.svg"):
        assert shared.ask(name)[0] == 200


@pytest.mark.parametrize("path", ["", "state", "view", "thumb/x/0", "image/0", "page.js", "no"])
def test_a_wrong_token_is_refused(shared, path):
    for token in ("x", shared.token[:-1], shared.token + "x", shared.token.swapcase(), "%20"):
        assert shared.ask(path, token=token)[0] == 403
    assert shared.ask(f"/{path}", absolute=True)[0] == 403


@pytest.mark.parametrize(
    "headers",
    [
        FOREIGN,
        {"Origin": "null"},
        {"Origin": None},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Host": "evil.example"},
        {"Host": "127.0.0.1"},
    ],
)
def test_a_foreign_page_cannot_decide(shared, headers):
    for path in ("decide", "undo"):
        assert shared.ask(path, decision(shared), headers=headers)[0] == 403
    assert not (shared.run / "decisions.jsonl").exists()


def test_a_foreign_page_cannot_look_either(shared):
    for headers in (FOREIGN, {"Sec-Fetch-Site": "cross-site"}, {"Host": f"evil:{shared.port}"}):
        assert shared.ask("state", headers=headers)[0] == 403
    status, headers, _ = shared.ask("state")
    assert status == 200
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert "access-control-allow-origin" not in headers


@pytest.mark.parametrize(
    "path",
    [
        "image/../../../../../../etc/passwd",
        "image/%2e%2e%2f%2e%2e%2ftriage.csv",
        "image//etc/passwd",
        "thumb/x/../../triage.csv",
        "../run/triage.csv",
        "triage.csv",
        "decisions.jsonl",
        "cache/index.jsonl",
        "page/page.js",
        "server.py",
        "image/60",
        "image/-1",
        "image/0.png",
        "thumb/x/60",
        "items?at=60",
        "items?at=-1",
        "items?at=a",
        "items?at=" + ",".join(["1"] * 501),
    ],
)
def test_nothing_outside_the_runs_images_is_reachable(shared, path):
    status, _, content = shared.ask(path)
    assert status in (400, 403, 404)
    assert b"root:" not in content
    assert b"p_value" not in content


def test_pictures_are_the_runs_own(shared):
    triage = read_table(shared.run)
    for number in (0, 17):
        for path in (f"thumb/x/{number}", f"image/{number}"):
            status, headers, content = shared.ask(path)
            assert status == 200
            assert headers["content-type"] == "image/png"
            colour = Image.open(io.BytesIO(content)).convert("RGB").getpixel((3, 3))
            n = int(triage.evidence.names[number].removesuffix(".png"))
            assert colour == (n % 250 + 1, 40 * (n % 6), 200)


def test_an_image_whose_file_has_gone_is_told_plainly(server):
    (server.run.parent / "pile" / "003.png").unlink()
    status, _, content = server.ask("image/3")
    assert status == 404
    assert b"the file is not there" in content
    assert server.ask("thumb/x/3")[0] == 200


def view(server, query=""):
    return np.frombuffer(server.ask(f"view?{query}")[2], "<u4").tolist()


def test_filters_choose_what_they_say(server):
    triage = read_table(server.run)
    evidence, state = triage.evidence, np.array(triage.state)
    every = set(range(60))
    assert set(view(server)) == every
    assert set(view(server, "state=review,unknown")) == set(np.flatnonzero(state != "accept"))
    assert set(view(server, "cluster=2")) == set(np.flatnonzero(triage.cluster == 2))
    assert set(view(server, "class=dog")) == set(np.flatnonzero(evidence.first == 1))
    within = (evidence.score >= -0.5) & (evidence.score <= 0.5)
    assert set(view(server, "low=-0.5&high=0.5")) == set(np.flatnonzero(within))
    scores = evidence.score[view(server, "order=score")]
    assert (np.diff(scores) >= 0).all()
    assert view(server, "order=file") == sorted(every)
    worth = state[view(server, "order=worth")]
    assert (worth[: (state == "review").sum()] == "review").all()

    server.json("decide", decision(server, at=[4, 5], do="label", label="newt"))
    assert set(view(server)) == every - {4, 5}
    assert set(view(server, "show=settled")) == {4, 5} == set(view(server, "show=all&class=newt"))
    server.json("decide", decision(server, at=[6], key="t:2"))
    assert view(server, "show=all&class=") == [6]


@pytest.mark.parametrize(
    "query", ["state=none", "order=up", "show=no", "cluster=x", "low=x", "class=newt"]
)
def test_filters_that_make_no_sense_are_refused(shared, query):
    assert shared.ask(f"view?{query}")[0] == 400


@pytest.mark.parametrize(
    "changes",
    [
        {"at": []},
        {"at": [60]},
        {"at": [True]},
        {"at": "1"},
        {"do": "undo"},
        {"do": "label"},
        {"do": "label", "label": " "},
        {"do": "label", "label": "Unknown"},
        {"do": "label", "label": "two\nlines"},
        {"do": "label", "label": "x" * 101},
        {"do": "label", "label": 3},
        {"key": ""},
        {"key": "k" * 65},
        {"seen": "1"},
    ],
)
def test_decisions_that_make_no_sense_are_refused(shared, changes):
    status, _, content = shared.ask("decide", decision(shared, **changes))
    assert status == 400
    assert content
    assert not (shared.run / "decisions.jsonl").exists()


def test_a_page_of_another_pile_is_told_to_load_again(shared):
    assert shared.ask("decide", decision(shared, pile="other"))[0] == 409
    assert shared.ask("undo", decision(shared, pile="other"))[0] == 409


def test_two_tabs_and_another_program_hear_of_each_other(server):
    first = server.json("decide", decision(server, at=[1, 2], do="label", label="cat"))
    assert first["standings"] == [[1, 0], [2, 0]] or first["standings"] == [[2, 0], [1, 0]]
    DecisionLog(server.run / "decisions.jsonl").decide(["003.png"], "label", "newt", key="p:1")
    heard = server.json(f"changes?seen={first['seen']}")
    assert heard["standings"] == [[3, 3]]
    assert heard["labels"] == ["cat", "dog", "fox", "newt"]
    undone = server.json("undo", decision(server, key="t:2", seen=heard["seen"]))
    assert undone["entry"]["label"] == "cat"
    assert sorted(undone["standings"]) == [[1, -1], [2, -1]]
    assert read_labels(server.run / "decisions.jsonl") == {"003.png": "newt"}
    (server.run / "decisions.jsonl").unlink()
    assert server.json(f"changes?seen={undone['seen']}")["whole"] is True
    assert server.json("state")["standings"] == []


def test_what_the_decisions_change_is_told_with_them(server):
    triage = read_table(server.run)
    review = [int(i) for i in triage.where("review")[:2]]
    told = server.json("decide", decision(server, at=review))["effect"]
    assert told["unknown"] == 2
    assert told["settled"] == [0, 2, 0]
    assert told["right"] == [0, 0, 0]
    assert told["sorted_pile"][2] == triage.counts()["unknown"] + 2
    assert server.json("state")["expected"] == {"share": 0.3, "low": 0.2, "high": 0.45}


def test_a_restarted_server_has_the_same_address_and_all_decisions(run_folder, start):
    server = start(run_folder)
    server.json("decide", decision(server))
    server.kill()
    again = start(server.run)
    assert again.url == server.url
    assert again.json("state")["standings"] == [[1, -2]]
    second = start(server.run)  # while the first still has the port
    assert second.port != again.port
    assert second.json("state")["standings"] == [[1, -2]]
    said = second.stop()
    assert "1 called unknown" in said


def test_the_end_tells_new_decisions_from_those_the_fit_was_given(run_folder, start):
    decided = Decided({"002.png": "cat"}, ("003.png", "004.png"), files=("earlier",))
    write_decided(run_folder, decided)
    carry_over(run_folder, decided)
    server = start(run_folder)
    server.json("decide", decision(server))
    said = server.stop()
    assert (
        f"0 images labelled, 1 called unknown, 0 skipped since the fit, and 3 decided before it, "
        f"in {run_folder / 'decisions.jsonl'}" in said
    )


def test_the_token_is_kept_for_the_user_alone(run_folder, start, tmp_path):
    server = start(run_folder)
    (kept,) = (tmp_path / "cache" / "review").iterdir()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert json.loads(kept.read_text())["token"] == server.token
    assert not any(
        server.token.encode() in path.read_bytes()
        for path in server.run.rglob("*")
        if path.is_file()
    )


def test_only_the_loopback_is_listened_on(run_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("ANEDL_CACHE", str(tmp_path / "cache"))
    for port in (None, 0):
        bound, address = listen(run_folder, port)
        assert bound.getsockname() == ("127.0.0.1", address.port)
        assert len(address.token) >= 32
        bound.close()
    other, elsewhere = listen(run_folder.parent)
    other.close()
    assert elsewhere.token != address.token


def test_a_folder_that_is_no_run_is_told_plainly(tmp_path, capsys):
    pytest.importorskip("starlette")
    assert main(["review", str(tmp_path)]) == 1
    assert "there is no triage here" in capsys.readouterr().err


def test_a_port_that_is_taken_is_told_plainly(shared, capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("ANEDL_CACHE", str(tmp_path / "other"))
    assert main(["review", str(shared.run), "--port", str(shared.port)]) == 1
    assert "name another with --port" in capsys.readouterr().err


def test_without_the_extra_the_command_says_what_to_install(run_folder, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "starlette.applications", None)
    monkeypatch.delitem(sys.modules, "anedl.review.server", raising=False)
    assert main(["review", str(run_folder)]) == 1
    assert 'pip install "anedl[review]"' in capsys.readouterr().err


def test_a_page_that_is_opened_early_waits(run_folder):
    """The address is printed before the server answers; a browser may be quicker."""
    bound, address = listen(run_folder)
    with bound, socket.create_connection((LOOPBACK, address.port), timeout=5):
        other, elsewhere = listen(run_folder)
        other.close()
        assert elsewhere.port != address.port  # its own is taken, and that shows at once
