"""The top of the page: what a reader needs in ten seconds."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from anedl.calibration import Calibration
from anedl.conformal import Threshold, clopper_pearson, conditional_interval, percent
from anedl.evaluation.metrics import OpenSetMetrics
from anedl.methods.catalogue import METHODS
from anedl.report.judged import Judged, Pile
from anedl.report.run_folder import SCORE_LABELS, Array, Run
from anedl.triage.verdict import Rules, State

STATE_WORDS: dict[State, str] = {"accept": "accepted", "review": "for review", "unknown": "unknown"}


@dataclass(frozen=True)
class Card:
    """A figure in large print, with its name above and what it means below."""

    name: str
    figure: str
    details: tuple[str, ...]
    warns: bool = False


@dataclass(frozen=True)
class Share:
    """A part of the sorted pile."""

    state: str
    words: str
    count: int
    percent: float


def title(run: Run) -> str:
    """What the page is called."""
    if run.is_own:
        if run.triage is not None:
            return f"A pile of {len(run.triage):,} images, sorted"
        return f"{run.method} on own images, seed {run.config['seed']}"
    return f"{run.method} on {run.config['setting']}, seed {run.config['seed']}"


def lede(run: Run) -> str:
    """What was trained on what, in a sentence or two."""
    split = run.split
    entry = METHODS.get(run.method)
    method = run.method + (f" ({entry.summary})" if entry else "")
    text = (
        f"{method} was trained on {len(split.labelled):,} labelled images of {split.num_known} "
        f"known classes and {len(split.pool):,} unlabelled ones"
    )
    if run.is_own:
        hidden = (run.fit or {}).get("images", {}).get("decoys", 0)
        if hidden:
            text += f", {hidden:,} of them known inliers, hidden among the pile to "
            text += "compare it with" if run.folds else "judge it by"
        held = len(split.validation) + len(split.test)
        text += f". It was tested on {held:,} labelled images that it never learnt from."
        if run.folds:
            text += (
                f" The pile was judged by {run.folds} further models in turn, each by a part of "
                f"the labelled images whose labels it had not seen."
            )
        return text
    targets = run.test_targets
    known, unknown = int((targets >= 0).sum()), int((targets < 0).sum())
    tested = f"It was tested on {known:,} images of the known classes"
    return f"{text}. {tested}" + (f" and {unknown:,} outliers." if unknown else ".")


def cards(run: Run, pile: Pile, judged: Judged) -> list[Card]:
    """Error, AUROC, how dirty the pile is, the thresholds, and whether the pile helped."""
    made = [
        _error_card(run, judged),
        _auroc_card(run),
        _dirt_card(run, pile),
        _threshold_card(run, pile, judged),
        _new_images_card(run),
        _help_card(run),
    ]
    return [card for card in made if card is not None]


def left_out(run: Run, compared: bool = False) -> list[str]:
    """What a reader may miss at the top, and why it is not there; `compared` has other runs by."""
    lines = []
    if run.is_own and len(run.decided):
        lines.append(
            f"There is no AUROC: people decided about {len(run.decided):,} images of the pile, but "
            "they picked which, so these are no fair sample of it."
        )
    elif run.is_own:
        lines.append(
            "There is no AUROC: nobody has said which images of the pile are of no known class."
        )
    else:
        if not run.has_outliers:
            lines.append("There is no AUROC: the test images hold no outliers.")
        if not compared:
            lines.append(
                "Whether the pool helped cannot be told from one run: train the method "
                "“supervised” on the same split and set both side by side with “anedl compare”."
            )
    return lines


def sorted_shares(pile: Pile) -> list[Share]:
    """How many images of the pile have each verdict; empty where nothing was sorted."""
    if pile.state is None or not len(pile):
        return []
    states = list(pile.state)
    return [
        Share(state, words, states.count(state), 100 * states.count(state) / len(states))
        for state, words in STATE_WORDS.items()
    ]


def decided_words(run: Run, pile: Pile) -> str:
    """How many verdicts are those of people, and what that leaves to estimate; "" without any."""
    if pile.state is None or not pile.decided.any():
        return ""
    states = np.array(pile.state)
    accepted, unknown = (
        _of_which(pile.decided[states == state], STATE_WORDS[state])
        for state in ("accept", "unknown")
    )
    text = f"People decided {accepted} and {unknown} before this run"
    found: dict[str, Any] | None = (run.fit or {}).get("pollution")
    if found is None:
        return f"{text}."
    return f"{text}; the share of no known class is estimated for the {found['pile']:,} others."


def strangers_words(run: Run, pile: Pile) -> str:
    """Where the pile's strangers must lie, by the estimate; "" where all may be called unknown.

    The low end is asked too: it holds whatever the strangers look like.
    """
    found: dict[str, Any] | None = (run.fit or {}).get("pollution")
    if pile.state is None or found is None or found.get("doubtful"):
        return ""
    states = np.array(pile.state)[~pile.decided]
    unknown = int((states == "unknown").sum())
    least, about = (round(found[word] * found["pile"]) for word in ("low", "share"))
    if min(least, about) <= unknown:
        return ""
    others = "that nobody has decided about " if pile.decided.any() else ""
    return (
        f"By the estimate about {about:,} of the {found['pile']:,} images {others}are of no known "
        f"class (at its low end {least:,}), and {unknown:,} of them are called unknown: about "
        f"{about - unknown:,} (at its low end {least - unknown:,}) or more of no known class lie "
        f"among the accepted and those for review."
    )


def _of_which(decided: Array, word: str) -> str:
    """How many of the images with a verdict people decided."""
    count, images = int(decided.sum()), len(decided)
    some = "none" if not count else "all" if count == images else f"{count:,}"
    return f"{some} of the {images:,} {word}"


def _error_card(run: Run, judged: Judged) -> Card:
    inlier = judged.inlier
    images = int(inlier.sum())
    wrong = int((judged.predicted != judged.targets)[inlier].sum())
    if run.is_own:
        low, high = clopper_pearson(wrong, images, 0.9)
        details = (f"{wrong} of {images} wrong", f"90 % interval {percent(low)} to {percent(high)}")
        return Card("Held-out error", f"{100 * wrong / images:.1f} %", details)
    models = _models(run)
    lines = [f"{images:,} images of known classes, last model"]
    if "best_val" in models:
        lines.append(f"best validation: {100 * models['best_val'].error:.1f} %")
    return Card("Test error", f"{100 * models['last'].error:.1f} %", tuple(lines))


def _auroc_card(run: Run) -> Card | None:
    models = _models(run)
    areas = {name: m.by_score["score"].auroc for name, m in models.items() if m.by_score}
    if "last" not in areas or not run.has_outliers:
        return None
    details = [f"of telling outliers, by {run.own_score_label}"]
    if "best_val" in areas:
        details.append(f"best validation: {100 * areas['best_val']:.1f} %")
    if not run.softmax_is_own_score:
        softmax = models["last"].by_score["max_softmax"].auroc
        details.append(f"by {SCORE_LABELS['max_softmax']}: {100 * softmax:.1f} %")
    return Card("AUROC", f"{100 * areas['last']:.1f} %", tuple(details))


def _dirt_card(run: Run, pile: Pile) -> Card | None:
    name = "Of no known class"
    if pile.truth is not None:
        outliers = int((pile.truth < 0).sum())
        share = f"{100 * outliers / max(1, len(pile)):.0f} %"
        return Card(name, share, (f"{outliers:,} of the pool's {len(pile):,} images, in truth",))
    found: dict[str, Any] | None = (run.fit or {}).get("pollution")
    if found is None:
        return None
    spread = f"{percent(found['low'])} to {percent(found['high'])}"
    which = "that nobody has decided about" if pile.decided.any() else "of the pile"
    return Card(
        name,
        f"{100 * found['share']:.0f} %",
        (
            f"of the {found['pile']:,} images {which}, estimated",
            f"{100 * found['level']:.0f} % interval {spread}",
        ),
    )


def _threshold_card(run: Run, pile: Pile, judged: Judged) -> Card | None:
    if run.calibration is not None:
        return _pile_card(run, run.calibration, pile.cut)
    if run.is_own:
        return None
    turned_away = 100 * (~judged.accepted)[judged.inlier].mean()
    words = f"on the test rejects {turned_away:.1f} % of inliers"
    if run.has_outliers:
        words += f", {100 * (~judged.accepted)[~judged.inlier].mean():.1f} % of outliers"
    return Card("Threshold", f"{judged.cut:.4g}", ("95 % of the validation images reach it", words))


def _pile_card(run: Run, calibration: Calibration, cut: float) -> Card:
    """What the threshold for images of the pile promises."""
    name, limit = "Threshold, pile", calibration.threshold("pile")
    rules = run.triage.rules if run.triage is not None else Rules()
    if rules.folds:
        found = (run.fit or {}).get("calibration", {}).get("thresholds", {}).get("pile", {})
        promise = found.get("note") or f"judged by {rules.folds} models in turn"
        if found.get("certified") == 0:
            return Card(name, "none", (f"nothing is rejected: {promise}",), warns=True)
        return Card(name, f"p ≤ {percent(rules.level)}", (promise,))
    if rules.benjamini_hochberg:
        figure = f"{cut:.4g}" if np.isfinite(cut) else "none"
        promise = f"at most {percent(rules.level)} of those called unknown are known, on average"
        return Card(name, figure, (promise,))
    hidden = len(calibration.seen) > 0
    return _calibrated_card(name, limit, "hidden in it" if hidden else "that training never saw")


def _new_images_card(run: Run) -> Card | None:
    """What the threshold for images that come later promises; only a calibrated run has it."""
    if run.calibration is None:
        return None
    limit = run.calibration.threshold("new")
    return _calibrated_card("Threshold, new images", limit, "that training never saw")


def _calibrated_card(name: str, limit: Threshold, which: str) -> Card:
    """What a threshold promises, and which inliers have set it."""
    if limit.note:
        return Card(name, "none", (f"nothing is rejected: {limit.note}",), warns=True)
    low, high = conditional_interval(limit.images, limit.asked)
    unfamiliar = (
        (f"rejects a familiarity below {limit.familiarity:.4g} too",)
        if np.isfinite(limit.familiarity)
        else ()
    )
    return Card(
        name,
        f"{limit.value:.4g}",
        (
            *unfamiliar,
            f"rejects at most {percent(limit.certified)} of true inliers on average",
            f"{percent(low)} to {percent(high)} in nine calibrations of ten",
            f"set by {limit.images:,} known images {which}",
        ),
    )


def _help_card(run: Run) -> Card | None:
    found: dict[str, Any] | None = (run.fit or {}).get("helped")
    if found is None:
        return None
    answer = "no, it hurt" if found["hurt"] else "yes" if found["high"] < 0 else "not shown"
    with_pile, without = (percent(found[f"error_{word}"]) for word in ("with", "without"))
    low, high = (f"{100 * found[end]:+.1f}" for end in ("low", "high"))
    return Card(
        "Did the pile help?",
        answer,
        (
            f"error {with_pile} with it, {without} from the labels alone",
            f"difference {100 * found['difference']:+.1f} points, 90 % interval {low} to {high}",
        ),
        warns=found["hurt"],
    )


def _models(run: Run) -> dict[str, OpenSetMetrics]:
    return {
        name: OpenSetMetrics.from_json(run.results[name]["test"])
        for name in ("last", "best_val")
        if name in run.results
    }
