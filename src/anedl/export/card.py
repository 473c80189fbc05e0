"""The model card of a run: README.md, with the metadata that model hubs read at its head.

Everything comes from the files of the run folder; what they do not say is left out.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from anedl import __version__
from anedl.calibration import Calibration
from anedl.data.protocol import Split
from anedl.data.split_file import read_split
from anedl.engine.spec import RunSpec, read_spec
from anedl.errors import DataError
from anedl.export.description import (
    RESULT_KEYS,
    Rejection,
    model_of,
    read_calibration,
    validation_threshold,
)
from anedl.export.markup import Value, code, markdown, yaml
from anedl.files import write_text
from anedl.methods.catalogue import short_name

CARD = "README.md"
MOST_CLASSES_LISTED = 1000
NO_LICENCE = "not-stated"
ECE_IMAGES = 50  # of fewer an expected calibration error is mostly noise


@dataclass(frozen=True)
class CardFacts:
    """What a run folder says of one of its models."""

    spec: RunSpec
    split: Split
    model: str
    results: Mapping[str, Any]
    calibration: Calibration | None
    rejection: Rejection | None
    fit: Mapping[str, Any]

    @cached_property
    def figures(self) -> Mapping[str, Any]:
        """The model's entry in `results.json`."""
        figures = self.results.get(RESULT_KEYS[self.model], {})
        return figures if isinstance(figures, Mapping) else {}

    @property
    def is_own(self) -> bool:
        """Whether it was trained on a user's own images, not on a benchmark."""
        return self.spec.own is not None

    @property
    def title(self) -> str:
        """The heading."""
        data = "own images" if self.is_own else self.spec.setting
        return f"{short_name(self.spec.method)} on {data}"

    def test_figure(self, *keys: str) -> float | None:
        """A figure of the test, by its keys; None where there is none."""
        value: Any = self.figures.get("test")
        for key in keys:
            value = value.get(key) if isinstance(value, Mapping) else None
        return _number(value)

    def notes(self, part: str) -> list[str]:
        """What the fit had to say on this part, sentence by sentence."""
        told = self.fit.get(part)
        notes = told.get("notes") if isinstance(told, Mapping) else None
        return [str(note).strip() for note in notes] if isinstance(notes, list) else []


def write_card(folder: Path, licence: str | None = None, model: str | None = None) -> Path:
    """Write README.md into a run folder; `licence` is that of the weights, as hubs name it.

    Where none is given, the one that an earlier card states stays.

    Raises:
        ConfigError: the folder holds no run.
        DataError: a file of the run cannot be read.
    """
    path = folder / CARD
    write_text(path, card_text(read_facts(folder, model), licence or licence_on(path)))
    return path


def licence_on(card: Path) -> str | None:
    """The licence of the weights that a card states, if there is a card and it does."""
    try:
        text = card.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    head = text.split("\n---", 1)[0]
    stated = re.search(r"^license: *\"?([^\"\n]+?)\"? *$", head, re.MULTILINE)
    if stated is None or f'license_name: "{NO_LICENCE}"' in head:
        return None
    return stated[1]


def read_facts(folder: Path, model: str | None = None) -> CardFacts:
    """Gather what a card says from config, split, results, calibration and the summary of a fit."""
    chosen = model_of(folder, model)
    calibration = read_calibration(folder, chosen)
    threshold = validation_threshold(folder, chosen)
    rejection = None
    if calibration is not None:
        rejection = Rejection.calibrated(calibration)
    elif threshold is not None:
        rejection = Rejection.of_validation(threshold)
    return CardFacts(
        spec=read_spec(folder / "config.json"),
        split=read_split(folder / "split.json"),
        model=chosen,
        results=_document(folder / "results.json"),
        calibration=calibration,
        rejection=rejection,
        # What a fit says is about the model that it calibrated.
        fit=_document(folder / "fit.json") if chosen == model_of(folder, None) else {},
    )


def card_text(facts: CardFacts, licence: str | None = None) -> str:
    """The whole card."""
    lines = ["---", *yaml(front_matter(facts, licence)), "---", ""]
    lines += [f"# {markdown(facts.title)}", ""]
    sections = {
        "What it is": _what_it_is(facts),
        "Classes": _classes(facts),
        "Data": _data(facts),
        "Figures": _figures(facts),
        "How to use it": _how_to_use(facts),
        "Limits": _limits(facts),
        "Licence": _licence(licence),
    }
    for heading, body in sections.items():
        lines += [f"## {heading}", "", *body, ""]
    return "\n".join(lines).rstrip() + "\n"


def front_matter(facts: CardFacts, licence: str | None) -> dict[str, Value]:
    """What a hub reads: library, tags, licence, task, and the figures of the test."""
    tags: list[Value] = ["anedl", "image-classification", "open-set-recognition"]
    tags += ["out-of-distribution-detection", "semi-supervised-learning"]
    document: dict[str, Value] = {
        "library_name": "anedl",
        "pipeline_tag": "image-classification",
        "tags": tags,
    }
    if licence is not None:
        document["license"] = licence
    else:
        document |= {"license": "other", "license_name": NO_LICENCE}
    if metrics := _metrics(facts):
        name = "own images" if facts.is_own else facts.spec.setting
        kind = "own" if facts.is_own else facts.spec.terms.dataset
        result: dict[str, Value] = {
            "task": {"type": "image-classification", "name": "Image classification"},
            "dataset": {"type": kind, "name": name, "split": "test"},
            "metrics": metrics,
        }
        document["model-index"] = [{"name": facts.title, "results": [result]}]
    return document


def _metrics(facts: CardFacts) -> list[Value]:
    metrics: list[Value] = []
    if (error := facts.test_figure("error")) is not None:
        accuracy = round(1 - error, 6)
        metrics.append({"type": "accuracy", "name": "Accuracy, known classes", "value": accuracy})
    if (auroc := facts.test_figure("by_score", "score", "auroc")) is not None:
        name = "AUROC, known against unknown"
        metrics.append({"type": "roc_auc", "name": name, "value": round(auroc, 6)})
    return metrics


def _what_it_is(facts: CardFacts) -> Iterator[str]:
    spec = facts.spec
    yield (
        f"A classifier of {facts.split.num_known} known classes that can also say “none of these”. "
        "Training had a few labelled images of the known classes, and a pile of unlabelled ones of "
        "which some may be of other classes; the method says what it makes of them."
    )
    yield ""
    yield f"- Method: {code(short_name(spec.method))} ({markdown(spec.entry.summary)})"
    side, channels = spec.terms.image_size, len(spec.terms.mean)
    kind = "colour" if channels == 3 else "grey"
    epoch = facts.figures.get("epoch")
    # A best model may be from before the last one began.
    networks = 1 + sum(restart <= (epoch or 0) for restart in spec.restarts)
    kept = ", trained elsewhere and kept as it was" if spec.train.frozen else ""
    together = f", {networks} that judge together" if networks > 1 else ""
    yield (
        f"- Network: {code(str(spec.train.backbone))}{kept}{together}, images of {side} × {side} "
        f"pixels, {kind}"
    )
    when = f", after epoch {epoch + 1}" if isinstance(epoch, int) else ""
    yield f"- Weights: the {facts.model} model{when}; seed {spec.seed}"
    yield f"- Made with anedl {markdown(str(facts.results.get('anedl', __version__)))}"


def _classes(facts: CardFacts) -> Iterator[str]:
    names = facts.split.known_names
    for number, name in enumerate(names[:MOST_CLASSES_LISTED]):
        yield f"{number}. {markdown(name)}"
    if len(names) > MOST_CLASSES_LISTED:
        yield ""
        yield f"and {len(names) - MOST_CLASSES_LISTED:,} more."


def _data(facts: CardFacts) -> Iterator[str]:
    split = facts.split
    if facts.is_own:
        yield "The owner's images."
    else:
        part = " (development split)" if facts.spec.development else ""
        yield f"Setting {code(facts.spec.setting)}, fold {facts.spec.fold}{part}."
    yield ""
    hidden = 0 if facts.calibration is None else len(facts.calibration.seen)
    pile = "unlabelled pile, with what is hidden in it" if hidden else "unlabelled pile"
    yield "| part | images |"
    yield "|---|---:|"
    counts = {
        "labelled": len(split.labelled),
        pile: len(split.pool),
        "validation": len(split.validation),
    }
    fresh = 0 if facts.calibration is None else len(facts.calibration.fresh)
    if facts.is_own and fresh == len(split.test):
        counts["test and calibration, new to the model"] = fresh
    else:
        after = facts.calibration is not None and facts.calibration.notes
        part = "calibration after training" if after else "calibration, new to the model"
        counts |= {"test": len(split.test), part: fresh}
    counts["calibration, hidden in the pile"] = hidden
    for part, count in counts.items():
        if count:
            yield f"| {part} | {count:,} |"


def _figures(facts: CardFacts) -> Iterator[str]:
    validation, test = len(facts.split.validation), len(facts.split.test)
    # A benchmark's are thousands, and stated above; of a user's own images there are often few.
    of_validation, of_test = (
        f", {count:,} images" if facts.is_own else "" for count in (validation, test)
    )
    shares = {
        f"validation error{of_validation}": _number(facts.figures.get("validation_error")),
        f"test error, known classes{of_test}": facts.test_figure("error"),
        "expected calibration error": facts.test_figure("ece") if test >= ECE_IMAGES else None,
        "AUROC, known against unknown": facts.test_figure("by_score", "score", "auroc"),
        "unknown accepted where 95 % of the known are": facts.test_figure(
            "by_score", "score", "fpr95"
        ),
    }
    if any(share is not None for share in shares.values()):
        yield "| figure | value |"
        yield "|---|---:|"
        for name, share in shares.items():
            if share is not None:
                yield f"| {name} | {100 * share:.2f} % |"
        yield ""
    if facts.test_figure("error") is not None and facts.is_own:
        yield "They are from few images of one source: expect others elsewhere."
        yield ""
    if facts.rejection is None:
        yield "There is no threshold: the model gives scores, and calls nothing unknown."
    else:
        lines = [facts.rejection.promise]
        if facts.calibration is not None:
            # A fit knows more than its scores: the pile may have been judged by folds.
            told = facts.notes("calibration") or facts.calibration.describe().splitlines()
            # Of a model calibrated after its training the promise says by whom, in the first note.
            told = told[2:] if facts.calibration.notes else told[1:]
            lines += [*told, *facts.notes("decisions")]
        yield "When is an image unknown?"
        yield ""
        yield from (f"- {markdown(line[0].upper() + line[1:])}." for line in lines)
    summary = facts.fit.get("summary")
    if isinstance(summary, str):
        summary = summary.splitlines()
    if isinstance(summary, Sequence) and summary:
        yield ""
        yield from (f"- {markdown(str(line))}" for line in summary if str(line).strip())


def _how_to_use(facts: CardFacts) -> Iterator[str]:
    model = "" if facts.model == "last" else f" --model {facts.model}"
    yield "On the command line, with this folder as `RUN`:"
    yield ""
    yield "```sh"
    yield f"anedl predict RUN photos/{model} > predictions.csv"
    yield f"anedl export RUN --onnx model.onnx{model}"
    yield "```"
    yield ""
    yield "In Python:"
    yield ""
    yield "```python"
    yield "import anedl"
    yield ""
    which = "" if facts.model == "last" else f', model="{facts.model}"'
    yield f'predictions = anedl.load("RUN"{which}).predict(["photo.jpg"])'
    yield "predictions.class_index, predictions.probability, predictions.unknown"
    yield "```"
    yield ""
    yield "The ONNX file needs neither torch nor anedl:"
    yield ""
    yield "```python"
    yield "import json"
    yield "import onnxruntime"
    yield ""
    yield 'session = onnxruntime.InferenceSession("model.onnx")'
    yield 'about = json.loads(session.get_modelmeta().custom_metadata_map["anedl"])'
    yield 'about["preprocessing"]["rule"], about["class_names"], about["unknown"]'
    yield 'outputs = session.run(None, {"images": images})  # uint8 (N, C, H, W)'
    yield "```"


def _limits(facts: CardFacts) -> Iterator[str]:
    yield (
        "- It knows the classes above and nothing else. The class that it names for an image it "
        "calls unknown is only the likeliest of these."
    )
    yield (
        "- Nothing is promised about how many images of other classes it notices; the more they "
        "resemble a known class, the fewer."
    )
    if facts.calibration is not None:
        yield (
            "- The promise about images of known classes holds on average, for images from the "
            "same source as the calibration images. With another camera, place or time it has to "
            "be calibrated again (`anedl calibrate`)."
        )
    else:
        yield (
            "- The threshold is no promise: no images were held out to calibrate this model "
            "(`anedl calibrate` makes it one)."
        )
    yield "- Probabilities are those of the network; check them before you rely on their size."
    if not facts.is_own:
        yield "- It was trained for a benchmark, to compare methods, and not for use."


def _licence(licence: str | None) -> Iterator[str]:
    if licence is None:
        yield (
            "The licence of these weights is not stated: it is for those to choose who trained "
            "them (`anedl export RUN --card --licence ID`). The code of anedl is under Apache-2.0."
        )
    else:
        yield f"The weights: {markdown(licence)}. The code of anedl is under Apache-2.0."


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _document(path: Path) -> dict[str, Any]:
    """A JSON object of the run folder; empty where there is no such file."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise DataError(f"{path}: cannot be read as JSON ({error}); make it anew") from error
    return document if isinstance(document, dict) else {}
