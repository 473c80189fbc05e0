"""The methods by name: which class, with which options, and what each changes of the engine's."""

import hashlib
import inspect
import sys
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from anedl.errors import ConfigError, unknown_name
from anedl.methods.anedl import Anedl
from anedl.methods.anedl_config import RELEASED
from anedl.methods.base import Method, MethodConfig
from anedl.methods.edl import Edl
from anedl.methods.fixmatch import FixMatch
from anedl.methods.iedl import IEdl
from anedl.methods.iomatch import IoMatch
from anedl.methods.mtc import Mtc
from anedl.methods.openmatch import OpenMatch
from anedl.methods.prosub import Prosub
from anedl.methods.scomatch import Scomatch
from anedl.methods.ssb import Ssb
from anedl.methods.supervised import Supervised
from anedl.methods.t2t import T2t
from anedl.methods.users_file import load_file
from anedl.options import field_default


@dataclass(frozen=True)
class Entry:
    """A named method: `options` change its config's defaults, `engine` the engine's.

    `by_dataset` and `engine_by_dataset` hold further ones for single data sets. Lengths are stated
    for a run of the full budget and scale with a shorter one: the engine's `horizon` and
    `warmup_steps`, and the method's `in_epochs`, which are named there with their least value.
    `frozen` and `frozen_by_dataset` are options behind a frozen trunk.
    """

    method: type[Method]
    summary: str
    options: Mapping[str, Any] = field(default_factory=dict)
    engine: Mapping[str, Any] = field(default_factory=dict)
    by_dataset: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    engine_by_dataset: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    in_epochs: Mapping[str, int] = field(default_factory=dict)
    frozen: Mapping[str, Any] = field(default_factory=dict)
    frozen_by_dataset: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    note: str = ""  # what one must know before comparing it
    source: Path | None = None  # the file of a user's method
    sha256: str | None = None  # and the hash of its bytes
    content: bytes | None = field(default=None, repr=False)  # and these, as they were loaded


# A recipe for 600 steps, chosen on development splits of draws 100–107, which no result uses. With
# three labels a class the strong view matters most. The released weights leave the evidence of
# outliers free to grow (N-EDL flattens by adding evidence where there is little), so the KL weighs
# eight times more; the consistency of Eq. 6 then weighs less, or it would hold all evidence down.
DIGITS: Mapping[str, Any] = MappingProxyType(
    {
        "labelled_views": ("weak", "strong"),
        "early_labelled_views": (),
        "kl_weight": 0.01,
        "kl_ramp_epochs": 3,
        "consistency_weight": 0.003,
    }
)

# The same for a user's own images; the ramp is of 30 epochs.
OWN: Mapping[str, Any] = MappingProxyType({**DIGITS, "kl_ramp_epochs": 8})

# No warm-up, and a cosine meant for 2^19 steps that is cut at 204,800.
RELEASED_ENGINE: Mapping[str, Any] = MappingProxyType(
    {"weight_decay": 5e-4, "schedule": "cosine-7/16", "horizon": 2**19}
)

# Our own recipe, from trials on development splits (docs/trials.md). Of the release's losses few
# teach the trunk anything about pool images that are not selected, the outliers above all; by how
# far an image is turned every one of them can.
PLUS: Mapping[str, Any] = MappingProxyType(
    {**RELEASED, "forward_passes": "one", "rotation_weight": 0.5}
)

# What a few hundred steps want instead, on the digits and on people's own images: a strong labelled
# view for the classifier alone, and all the time; a KL term that makes itself felt soon; of every
# predicted class a share in self-training (half of it goes by rank, for how even the classes of a
# user's pile are is not known). Turned digits brought nothing.
PLUS_SHORT: Mapping[str, Any] = MappingProxyType(
    {
        "early_labelled_views": (),
        "labelled_views": ("weak", "strong"),
        "edl_labelled_views": "first",
        "head_batches": "joint",
        "kl_weight": 0.01,
        "selection_quota": 0.5,
        "rotation_weight": 0.0,
    }
)

# Behind a frozen trunk all features are there from the first step, and there too the KL term has to
# make itself felt soon: thirty points of AUROC on the development split of CIFAR-100, and one more
# by strong labelled views for the classifier (docs/trials.md). What a trunk makes of turned images
# cannot teach it anything.
PLUS_FROZEN: Mapping[str, Any] = MappingProxyType(
    {
        "early_labelled_views": (),
        "labelled_views": ("weak", "strong"),
        "edl_labelled_views": "first",
        "kl_weight": 0.01,
        "rotation_weight": 0.0,
    }
)

# With few labels an evidential head may tell these from the pool by heart, unless selected images
# teach it too; with thousands that costs AUROC. By AUROC this much is never the worst from 25 to
# 250 labels a class (docs/fit.md).
PLUS_FROZEN_FEW: Mapping[str, Any] = MappingProxyType({"selected_evidence": 0.3})

# Every method sees the labelled digits under the same views.
DIGITS_VIEWS: Mapping[str, Any] = MappingProxyType({"labelled_views": DIGITS["labelled_views"]})

# The views that labelled images have in the release's first epochs; the paper states none, so they
# are `anedl`'s too, and those of the methods that were trained by the same code.
EARLY: Mapping[str, Any] = MappingProxyType(
    {"early_labelled_views": RELEASED["early_labelled_views"]}
)
NOT_EARLY: Mapping[str, Any] = MappingProxyType({**DIGITS_VIEWS, "early_labelled_views": ()})

# λ_CON where Eq. 6 holds from the start and between a weak and a strong view, as the paper has it;
# its weight the paper does not state. At the release's 0.03, meant for two weak views in
# self-training, known and unknown get the same evidence: AUROC 55 after 50 epochs of CIFAR-100, and
# 75 after 12 with this (docs/trials.md).
PAPERS_CONSISTENCY: Mapping[str, Any] = MappingProxyType({"consistency_weight": 1e-3})

# Both stages are alike to it, so there is nothing to pre-train for.
ONE_STAGE: Mapping[str, Any] = MappingProxyType({"pretrain_share": 0.0})

# On the digits and on people's own images every method of two stages pre-trains as long as ANEDL
# does: in so few steps the published shares leave one stage or the other too few to learn anything.
EVEN_STAGES: Mapping[str, Any] = MappingProxyType({"pretrain_share": 0.25})
SHORT_RUNS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {"digits": EVEN_STAGES, "own": EVEN_STAGES}
)

PAPERS_DECAY = (
    "its weight decay is the paper's 1e-4; the released code and the methods to compare with have "
    "5e-4 or as their own releases: a difference in recipe (--weight-decay 5e-4 takes it away)"
)

OF_TEN_CLASSES = "the weights of its losses are those of papers with ten classes"
NO_EVIDENCE = "; among 55 the KL lets no evidence arise (AUROC 47 after 50 epochs of CIFAR-100)"

NOT_AS_RELEASED = (
    "four things are not as released: in the trunk's blocks that widen it the first convolution "
    "reads the activated input (the release drops that activation); on a GPU steps run in bf16 "
    "(the release's in fp32: --precision fp32); q̂ is one for all (the release keeps one for each "
    "place in a batch, the same but for noise); and the scales of the evidential head's BatchNorms "
    "are not decayed"
)

METHODS: Mapping[str, Entry] = MappingProxyType(
    {
        "anedl": Entry(
            Anedl,
            "adaptive negative evidential deep learning, the paper's equations",
            options={**EARLY, **PAPERS_CONSISTENCY},
            engine={"weight_decay": 1e-4},
            by_dataset={"digits": DIGITS, "own": OWN},
            in_epochs={"kl_ramp_epochs": 1},
            note=PAPERS_DECAY,
        ),
        "anedl-released": Entry(
            Anedl,
            "ANEDL as the authors' released code does it",
            options=RELEASED,
            engine=RELEASED_ENGINE,
            in_epochs={"kl_ramp_epochs": 1},
            note=NOT_AS_RELEASED,
        ),
        "anedl-plus": Entry(
            Anedl,
            "ANEDL as we would train it: the released reading with our own additions",
            options=PLUS,
            engine=RELEASED_ENGINE,
            by_dataset={"digits": PLUS_SHORT, "own": PLUS_SHORT},
            in_epochs={"kl_ramp_epochs": 1},
            frozen=PLUS_FROZEN,
            frozen_by_dataset={"own": PLUS_FROZEN_FEW, "digits": PLUS_FROZEN_FEW},
            note="what it adds to the release is ours, chosen on development splits, and not final",
        ),
        "supervised": Entry(
            Supervised,
            "cross-entropy on the labelled images alone",
            engine=ONE_STAGE,
            by_dataset={"digits": DIGITS_VIEWS, "own": DIGITS_VIEWS},
        ),
        "fixmatch": Entry(
            FixMatch,
            "confident pseudo-labels on the whole pool, outliers and all",
            engine=ONE_STAGE,
            by_dataset={"digits": DIGITS_VIEWS, "own": DIGITS_VIEWS},
        ),
        "openmatch": Entry(
            OpenMatch,
            "FixMatch on what a one-vs-all detector takes for inliers",
            options=EARLY,
            by_dataset={"digits": NOT_EARLY, "own": NOT_EARLY},
        ),
        "edl": Entry(
            Edl,
            "classical evidential detector on the labels, self-training as ANEDL's",
            options=EARLY,
            engine={"weight_decay": 1e-4},
            by_dataset={"digits": NOT_EARLY, "own": NOT_EARLY},
            note=f"{PAPERS_DECAY}; {OF_TEN_CLASSES}{NO_EVIDENCE}",
        ),
        "iedl": Entry(
            IEdl,
            "the same with Fisher-weighted evidence (I-EDL)",
            options=EARLY,
            engine={"weight_decay": 1e-4},
            by_dataset={"digits": NOT_EARLY, "own": NOT_EARLY},
            note=f"{PAPERS_DECAY}; {OF_TEN_CLASSES}",
        ),
        "mtc": Entry(
            Mtc,
            "multi-task curriculum: a domain head, Otsu's threshold, MixMatch",
            engine={
                "optimiser": "adam",
                "learning_rate": 2e-3,
                "schedule": "constant",
                "weight_decay": 0.0,
                "multiplicative_decay": 0.02,
                # Released: 100 passes over the images, of 78 thousand steps in 1.13 million.
                "pretrain_share": 0.07,
            },
            by_dataset={
                # Labels are a sixtieth of all images here, too few to be heard among so few steps.
                "digits": {"score_window": 2, "ramp_share": 0.4, "labelled_weight": 1.0},
                "own": {"labelled_weight": 1.0},
            },
            engine_by_dataset={
                **SHORT_RUNS,
                "digits": {**EVEN_STAGES, "multiplicative_decay": 0.0},
            },
            in_epochs={"score_window": 2},  # fewer would be no average
        ),
        "t2t": Entry(
            T2t,
            "trash to treasure: rotations, cross-modal matching, UDA",
            engine={"pretrain_share": 0.2},  # released: 50 of 250 thousand steps
            by_dataset={"digits": {"selected_ratio": 2, "match_bn_momentum": 0.1}},
            engine_by_dataset=SHORT_RUNS,
        ),
        "iomatch": Entry(
            IoMatch,
            "joint use of inliers and outliers by an open-set classifier",
            engine=ONE_STAGE,
            by_dataset={"imagenet30": {"pool_ratio": 1}},
            engine_by_dataset={
                "cifar100": {"weight_decay": 1e-3},
                "miniimagenet": {"weight_decay": 1e-3},  # not released: as CIFAR-100
                "imagenet30": {"weight_decay": 3e-4, "batch_size": 32},
            },
        ),
        "ssb": Entry(
            Ssb,
            "FixMatch, then a detector with pseudo-negative mining",
            # Released: 475 of 512 epochs. The detector learns in what is left, so the rate must
            # not have fallen to nothing by then.
            engine={"pretrain_share": 0.93, "schedule": "cosine-7/16"},
            engine_by_dataset=SHORT_RUNS,
            note="its detector learns in the last 7 % of a run: in 14,336 steps of the full budget "
            "and 3,072 of the fast one, where its release has 37,888",
        ),
        "scomatch": Entry(
            Scomatch,
            "outliers as one more class, learnt from a queue of likely outliers",
            engine=ONE_STAGE,
            by_dataset={"digits": DIGITS_VIEWS, "own": DIGITS_VIEWS},
        ),
        "prosub": Entry(
            Prosub,
            "nearness to the subspace of the class prototypes",
            engine={
                # Released: 50 thousand of 2^19 steps, but 30 thousand of 100 thousand: in a run as
                # short as the fast budget take `--pretrain-share 0.3`.
                "pretrain_share": 0.1,
                "schedule": "cosine-7/16",
                "hold_pretraining": True,
            },
            by_dataset={"digits": DIGITS_VIEWS, "own": DIGITS_VIEWS},
            engine_by_dataset={
                **SHORT_RUNS,
                "digits": {**EVEN_STAGES, "schedule": "cosine", "hold_pretraining": False},
                "cifar100": {"weight_decay": 1e-3, "schedule": "cosine-5/16"},
                # Released for Tiny-ImageNet.
                "miniimagenet": {"weight_decay": 1e-3, "schedule": "cosine-5/16"},
                "imagenet30": {"pretrain_share": 0.3},
            },
        ),
    }
)


def get_method(name: str) -> Entry:
    """The method of that name, or the class that `path/to/file.py:ClassName` names.

    Raises:
        ConfigError: there is none; for a name the message suggests the nearest.
    """
    path = file_of(name)
    if path is not None:
        if not path.is_file():
            raise ConfigError(
                f"method {name}: there is no such file (a run keeps a copy of the one that it was "
                f"trained with: RUN/method.py:{short_name(name)})"
            )
        return _from_bytes(name, path, path.read_bytes())
    if name not in METHODS:
        raise unknown_name("method", name, METHODS)
    return METHODS[name]


def get_method_from_copy(name: str, copy: Path, sha256: str) -> Entry:
    """The class that `path/to/file.py:ClassName` names, from a copy of that file.

    Raises:
        ConfigError: the copy's bytes are not those of that hash; they are then not run.
    """
    path, content = file_of(name), copy.read_bytes()
    assert path is not None
    if (found := hashlib.sha256(content).hexdigest()) != sha256:
        raise ConfigError(
            f"{copy}: not the file that the run was trained with (SHA-256 {found[:12]}…, its "
            f"config.json says {sha256[:12]}…), so it is not run; restore it, or {path} as it was"
        )
    return _from_bytes(name, copy, content)


def file_of(name: str) -> Path | None:
    """The file that a method's name speaks of; None for one of the catalogue."""
    path, colon, _ = name.rpartition(":")
    return Path(path) if colon and path.endswith(".py") else None


def full_name(name: str) -> str:
    """The name that means the same method from any folder: a file's path is made absolute."""
    path = file_of(name)
    return name if path is None else f"{path.resolve()}:{short_name(name)}"


def name_of(method: type[Method]) -> str:
    """The name of a class, by which a run is repeated: the catalogue's, or its file and its own.

    Raises:
        ConfigError: no file of its own holds it, or the catalogue has several methods of it.
    """
    if named := [name for name, entry in METHODS.items() if entry.method is method]:
        if len(named) > 1:
            raise ConfigError(
                f"method {method.__name__}: several methods are of this class; give one of "
                f"{', '.join(map(repr, named))}"
            )
        return named[0]
    module = sys.modules.get(method.__module__)
    path = getattr(module, "__file__", None)
    # The file is run again to load the class, and a script would train again with it.
    if path is None or method.__module__ == "__main__":
        raise ConfigError(
            f"method {method.__name__}: what trains a run is recorded and loaded again from a file "
            f"of its own; write the class to mine.py, and import it or give "
            f"'mine.py:{method.__name__}'"
        )
    return f"{path}:{method.__qualname__}"


def short_name(name: str) -> str:
    """The name to show and to call folders by: of a method from a file, its class."""
    return name.rpartition(":")[2]


def _from_bytes(name: str, read_from: Path, content: bytes) -> Entry:
    """A user's method, of the bytes of its file, which may have been read from a copy."""
    path = file_of(name)
    assert path is not None
    sha256 = hashlib.sha256(content).hexdigest()
    try:
        module = load_file(path.resolve(), read_from.resolve(), content, sha256)
    except Exception as error:
        of_copy = "" if read_from == path else f"'s copy {read_from}"
        raise ConfigError(f"method {name}: the file{of_copy} does not load: {error}") from error
    method = getattr(module, short_name(name), None)
    if not (isinstance(method, type) and issubclass(method, Method)):
        raise ConfigError(f"method {name}: the file has no such subclass of Method")
    _check_class(method, f"method {name}")
    summary = (method.__doc__ or "a method from a file").strip().splitlines()[0]
    entry = Entry(
        method, summary, engine=method.engine, source=path.resolve(), sha256=sha256, content=content
    )
    parent = _parent(method, f"method {name}")
    return entry if parent is None else _with_defaults_of(parent, entry)


def _check_class(method: type[Method], name: str) -> None:
    """Tell what a user's class lacks, or states in another form than is read."""
    if missing := sorted(method.__abstractmethods__):
        raise ConfigError(
            f"{name}: the class has no {' and no '.join(f'`{verb}`' for verb in missing)}, which "
            f"every method must have"
        )
    if not isinstance(method.engine, Mapping):
        raise ConfigError(
            f"{name}: engine must map names of the engine's options to values, as in "
            f"engine = {{'weight_decay': 0.0}}"
        )
    config = method.config_type
    if not (isinstance(config, type) and issubclass(config, MethodConfig)):
        raise ConfigError(
            f"{name}: config_type must be a class that extends MethodConfig, got {config!r}"
        )
    # Without it what stands there are attributes of a class, of which no flag is made.
    if inspect.get_annotations(config) and "__dataclass_fields__" not in vars(config):
        raise ConfigError(
            f"{name}: {config.__name__} holds options and is no dataclass: write "
            f"@dataclass(frozen=True) above it"
        )
    if open_ones := [a_field.name for a_field in fields(config) if a_field.default is MISSING]:
        raise ConfigError(
            f"{name}: option {open_ones[0]!r} of {config.__name__} needs a default value: "
            f"{open_ones[0]}: … = option(0.5, 'what it does')"
        )


def _parent(method: type[Method], name: str) -> Entry | None:
    """The entry that a user's class says it is `like`, or that of the nearest class above it."""
    if method.like is None:
        entries = [e for above in method.__mro__ for e in METHODS.values() if e.method is above]
        return entries[0] if entries else None
    if not isinstance(method.like, str) or method.like not in METHODS:
        raise ConfigError(f"{name}: like: {unknown_name('method', str(method.like), METHODS)}")
    entry = METHODS[method.like]
    if not issubclass(method, entry.method):
        raise ConfigError(
            f"{name}: like: {method.like} is a {entry.method.__name__}, which this class does not "
            f"derive from"
        )
    return entry


def _with_defaults_of(parent: Entry, entry: Entry) -> Entry:
    """A user's entry with the defaults of another, except where its class says otherwise.

    An option whose default its config changes keeps that one on every data set.
    """
    above = {a_field.name: field_default(a_field) for a_field in fields(parent.method.config_type)}
    kept = {
        a_field.name
        for a_field in fields(entry.method.config_type)
        if a_field.name in above and field_default(a_field) == above[a_field.name]
    }

    def inherited(options: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in options.items() if name in kept}

    def of_engine(options: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in options.items() if name not in entry.engine}

    return replace(
        entry,
        options=inherited(parent.options),
        engine={**parent.engine, **entry.engine},
        by_dataset={name: inherited(options) for name, options in parent.by_dataset.items()},
        engine_by_dataset={
            name: of_engine(options) for name, options in parent.engine_by_dataset.items()
        },
        in_epochs=inherited(parent.in_epochs),
        frozen=inherited(parent.frozen),
        frozen_by_dataset={
            name: inherited(options) for name, options in parent.frozen_by_dataset.items()
        },
    )
