"""The drawing surface of every figure: one look, colours for every eye, no global state."""

from textwrap import wrap
from typing import TYPE_CHECKING, Any

from anedl.errors import AnedlError
from anedl.report.letters import saved

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The palette of Okabe and Ito, told apart with any kind of colour vision. Blue and orange are kept
# for inliers and outliers.
INLIER = "#0072B2"
OUTLIER = "#E69F00"
FIRST = "#009E73"
SECOND = "#CC79A7"
INK = "#222222"
FAINT = "#777777"
PALE = "#BBBBBB"
GRID = "#E4E4E4"
BAND = "#F0F0F0"

LINES = ((FIRST, "-"), (SECOND, "--"), (INK, ":"))  # colour and dash of curves in one figure

# Many curves in one figure, where nothing is an inlier or an outlier. Colours and dashes are of
# different numbers, so that neither comes back with the same other for long.
SERIES_COLOURS = (FIRST, SECOND, INLIER, OUTLIER, INK)
SERIES_DASHES = ((), (4, 1.5), (1, 1.2), (4, 1.2, 1, 1.2))  # stroke and gap, in widths of the line

PAGE_WIDTH = 8.0  # inches
DOTS_PER_INCH = 144


def series_look(number: int) -> tuple[str, tuple[float, ...]]:
    """Colour and dash of the curve of that number: twenty different ones."""
    return (
        SERIES_COLOURS[number % len(SERIES_COLOURS)],
        SERIES_DASHES[number % len(SERIES_DASHES)],
    )


def missing_extra(package: str) -> AnedlError:
    """The error for a report without the packages it is drawn with."""
    return AnedlError(
        f'reports need {package}, which is not installed: pip install "anedl[report]"'
    )


def new_figure(width: float, height: float) -> "Figure":
    """An empty figure of so many inches, with no window and no global state behind it."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise missing_extra("matplotlib") from error
    return Figure(figsize=(width, height), layout="constrained", facecolor="white")


def tidy(axes: "Axes") -> None:
    """Take the box away and leave a light grid."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(True, color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)


def whole_numbers(axes: "Axes") -> None:
    """Let the x axis count: no tick between two whole numbers."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))


def legend(axes: "Axes", **options: Any) -> None:
    """A legend without a frame."""
    axes.legend(frameon=False, fontsize=9, **options)


def to_png(figure: "Figure") -> bytes:
    """The figure as PNG without empty margins: the same figure gives the same bytes."""
    content, _ = saved(
        figure, format="png", dpi=DOTS_PER_INCH, bbox_inches="tight", pad_inches=0.06,
        metadata={"Software": None},
    )  # fmt: skip
    return content


def two_lines(name: str, width: int) -> str:
    """A name on at most two lines of that many characters."""
    first, *rest = wrap(name, width) or [""]
    return f"{first}\n{shortened(' '.join(rest), width)}" if rest else first


def shortened(name: str, longest: int) -> str:
    """A name cut to fit, with an ellipsis where something was lost."""
    return name if len(name) <= longest else name[: longest - 1] + "…"
