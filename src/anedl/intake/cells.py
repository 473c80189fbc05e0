"""Texts in the cells of a CSV table, so that no spreadsheet takes one for a formula.

A spreadsheet takes a cell that begins with = + - @ (or their full-width forms, or a tab or line
break before them) for a formula, and a file may be named so by someone who means harm. Such a text
gets an apostrophe before it; so does a text that begins with an apostrophe, so taking one leading
apostrophe away from a text always restores it.
"""

MEANS_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠", "'")


def shielded(text: str) -> str:
    """A text as it may stand in a spreadsheet: never a formula."""
    return f"'{text}" if text.startswith(MEANS_FORMULA) else text


def unshielded(cell: str) -> str:
    """The text behind a cell."""
    return cell[1:] if cell.startswith("'") else cell
