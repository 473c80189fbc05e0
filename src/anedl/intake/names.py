r"""File names as people may read them: one line, printable, and never two files under one name.

A file system allows any bytes in a name. What cannot be shown is escaped: a byte that is not UTF-8
as `\xff`, control characters and marks that reverse text as `\x0a` or `\u202e`. A name that holds
such an escape literally gets its backslash escaped (`\x5cx0a`), so different names stay different.
"""

import re
import unicodedata

_LOOKS_ESCAPED = re.compile(r"\\(?=x[0-9a-f]{2}|u[0-9a-f]{4})")
# Control characters, line and paragraph separators, lone surrogates.
_NOT_SHOWN = ("Cc", "Zl", "Zp", "Cs")
_REVERSING = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


def shown(name: str) -> str:
    """The name as tables and messages show it; different names stay different."""
    if name.isascii() and name.isprintable() and "\\" not in name:
        return name
    escaped = _LOOKS_ESCAPED.sub(lambda _: "\\x5c", name)
    return "".join(_escape(character) for character in escaped)


def _escape(character: str) -> str:
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is not UTF-8, as os.fsdecode keeps it
        return f"\\x{code - 0xDC00:02x}"
    if unicodedata.category(character) in _NOT_SHOWN or character in _REVERSING:
        return f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}"
    return character
