import os
import re

from hypothesis import example, given
from hypothesis import strategies as st

from anedl.intake.names import shown


def read_back(text):
    """The file name behind a shown one, as bytes."""
    parts = re.split(r"(\\x[0-9a-f]{2}|\\u[0-9a-f]{4})", text)
    plain = []
    for part in parts:
        if re.fullmatch(r"\\x[0-9a-f]{2}", part):
            plain.append(bytes([int(part[2:], 16)]))
        elif re.fullmatch(r"\\u[0-9a-f]{4}", part):
            plain.append(chr(int(part[2:], 16)).encode())
        else:
            plain.append(part.encode())
    return b"".join(plain)


@given(st.binary(max_size=30))
@example(b"\\x0a")
@example(b"\\\\x0a\n")
@example(b"\\u202e\xe2\x80\xae")
@example(b"\xc2\x85\x85")
def test_a_shown_name_is_printable_and_tells_the_bytes(name):
    text = shown(os.fsdecode(name))
    assert read_back(text) == name
    assert "\n" not in text
    assert text.splitlines() in ([], [text])
    text.encode("utf-8")


def test_ordinary_names_stay_as_they_are():
    for name in ("a b/c,d.jpg", "café.png", "back\\slash.png", "日本.webp", "نیم\u200cفاصله.jpg"):
        assert shown(name) == name


def test_escapes():
    assert shown("a\nb\x1b[31m") == r"a\x0ab\x1b[31m"
    assert shown(os.fsdecode(b"caf\xe9")) == r"caf\xe9"
    assert shown("gpj\u202e.exe") == r"gpj\u202e.exe"
