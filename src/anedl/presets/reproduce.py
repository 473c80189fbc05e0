"""Running an experiment: which runs it needs, which of them are there, training the others."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Literal

from anedl.data.sources import load_dataset
from anedl.engine.spec import RunSpec, default_folder, make_spec, read_spec
from anedl.errors import AnedlError, DataError
from anedl.ledger.entry import LedgerRun, read_ledger, record_run
from anedl.ledger.published import Published, published_file, read_published
from anedl.ledger.table import WITHOUT_EFFECT
from anedl.presets.experiment import Experiment, Row
from anedl.presets.jobs import Done, Job, Place, call_apart, train_jobs

State = Literal["finished", "recorded", "cut", "missing"]


@dataclass(frozen=True)
class Terms:
    """On what terms an experiment is run; `train` are options of the engine for every run."""

    seeds: tuple[int, ...]
    budget: str = "full"
    development: bool = False
    runs: Path = Path("runs")
    results: Path = Path("results")
    train: Mapping[str, Any] = field(default_factory=dict)

    @property
    def comparable(self) -> bool:
        """Whether a published number may stand beside its runs, if it is of their rows' options."""
        return not self.development and all(name in WITHOUT_EFFECT for name in self.train)


@dataclass(frozen=True)
class Planned:
    """One run that an experiment needs, and where it stands.

    "finished": its folder holds the results. "recorded": the ledger has it, its folder is not here.
    "cut": the folder holds its beginning. "missing": nothing is there.
    """

    row: Row
    seed: int
    spec: RunSpec
    folder: Path
    state: State


@dataclass(frozen=True)
class Outcome:
    """What an experiment came to: the runs that are done and why others are not.

    `done` and `folders` are keyed by the digest of the spec.
    """

    experiment: Experiment
    terms: Terms
    done: Mapping[str, LedgerRun]
    folders: Mapping[str, Path]
    published: Sequence[Published]
    failures: Sequence[Done]

    def runs_of(self, row: Row) -> list[LedgerRun]:
        """The runs of a row that are done, in the order of the seeds."""
        found = (self.done.get(digest) for digest in self._digests(row))
        return [run for run in found if run is not None]

    def folders_of(self, row: Row) -> list[Path]:
        """Their folders, where these are here."""
        return [self.folders[d] for d in self._digests(row) if d in self.folders]

    def shown(self, row: Row) -> list[str]:
        """The digests of the runs that are shown of a row."""
        known = self.folders if self.experiment.needs_outputs else self.done
        return [digest for digest in self._digests(row) if digest in known]

    def has(self, row: Row) -> bool:
        """Whether there is something to show of a row."""
        return bool(self.shown(row))

    def published_of(self, row: Row) -> Published | None:
        """The published number to set beside a row; None where ours would not be its like."""
        run = next(iter(self.runs_of(row)), None)
        if run is None or run.budget == "custom" or not self.terms.comparable:
            return None
        return row.published(self.published, self.experiment.published_as)

    def _digests(self, row: Row) -> list[str]:
        return [spec_of(row, seed, self.terms).digest for seed in self.terms.seeds]


def spec_of(row: Row, seed: int, terms: Terms) -> RunSpec:
    """The run of a row with that seed on these terms."""
    return row.spec(seed, terms.budget, terms.development, terms.train)


def plan(experiment: Experiment, terms: Terms) -> list[Planned]:
    """Every run that the experiment needs, each once, and where it stands.

    A finished run counts wherever it lies under `terms.runs`; an entry of the ledger counts too,
    unless the experiment looks at single images.
    """
    finished = _finished(terms.runs)
    recorded = {run.config_hash for run in read_ledger(terms.results)}
    planned: dict[str, Planned] = {}
    for row in experiment.rows:
        for seed in terms.seeds:
            spec = spec_of(row, seed, terms)
            if spec.digest in planned:
                continue
            state: State
            if spec.digest in finished:
                folder, state = finished[spec.digest], "finished"
            else:
                folder, state = _place_for(row, spec, terms)
                if spec.digest in recorded and not experiment.needs_outputs:
                    state = "recorded"
            planned[spec.digest] = Planned(row, seed, spec, folder, state)
    return list(planned.values())


def run_experiment(
    experiment: Experiment,
    terms: Terms,
    place: Place = Place(),  # noqa: B008 - frozen
    told: Callable[[Done], None] | None = None,
) -> Outcome:
    """Train what is missing, record every finished run in the ledger, and gather the outcome.

    A run that fails is among the outcome's failures and loses no other.

    Raises:
        AnedlError: before anything is trained, if data are missing or a folder cannot be written.
    """
    planned = plan(experiment, terms)
    by_folder = {one.folder: one for one in planned}

    def record(one: Planned) -> None:
        command = one.row.command(one.seed, terms.budget, terms.development, terms.train)
        record_run(one.folder, terms.results, command)

    def end(done: Done) -> None:
        # At once, so that an interrupted experiment keeps what it has.
        if done.error is None:
            record(by_folder[done.job.folder])
        if told is not None:
            told(done)

    known = {run.config_hash for run in read_ledger(terms.results)}
    unrecorded = [
        one for one in planned if one.state == "finished" and one.spec.digest not in known
    ]
    missing = to_train(planned)
    if missing or unrecorded:
        _check_writable(terms.results / "runs", terms.results / "figures")
    if missing:
        _check_writable(terms.runs)
        if lacking := missing_data(missing, place.data_root):
            raise DataError(
                f"nothing was trained, for data are missing:\n{lacking}\n"
                f"--setting chooses the settings whose data are there, --data says where data are"
            )
    for one in unrecorded:
        record(one)
    jobs = [_job(one, terms) for one in missing]
    if frozen := [job for job, one in zip(jobs, missing, strict=True) if one.spec.train.frozen]:
        call_apart(partial(_keep_features, frozen, told is None), place)
    ended = train_jobs(jobs, place, end)
    failures = [done for done in ended if done.error is not None]
    if any(spec_of(one.row, one.seed, terms).digest != one.spec.digest for one in planned):
        raise AnedlError(
            "the file of a method has changed since this began; the runs of its old text are in "
            "the ledger: call it again for those of the new one"
        )
    wanted = {one.spec.digest for one in planned}
    return Outcome(
        experiment,
        terms,
        done={r.config_hash: r for r in read_ledger(terms.results) if r.config_hash in wanted},
        folders={
            one.spec.digest: one.folder for one in planned if (one.folder / "results.json").exists()
        },
        published=read_published(published_file(terms.results)),
        failures=failures,
    )


def to_train(planned: Sequence[Planned]) -> list[Planned]:
    """Those that must still be trained, or trained to their end."""
    return [one for one in planned if one.state in ("cut", "missing")]


def missing_data(planned: Sequence[Planned], root: Path | None = None) -> str:
    """A line for each data set of these runs that is not there or not whole, with its remedy."""
    settings: dict[str, dict[str, None]] = {}
    for one in planned:
        settings.setdefault(one.spec.terms.dataset, {})[one.spec.setting] = None
    lines = []
    for dataset, names in settings.items():
        try:
            load_dataset(dataset, root)
        except DataError as error:
            lines.append(f"  {', '.join(names)}: {error}")
    return "\n".join(lines)


def _keep_features(jobs: Sequence[Job], quiet: bool, place: Place) -> None:
    """Let the jobs' frozen trunks look at their images, once, with the whole machine.

    What goes wrong here goes wrong in the runs, which lose no others by it and tell it themselves.
    """
    from anedl.engine.features import keep_features
    from anedl.engine.model import choose_device
    from anedl.presets.gpus import names_of

    device = choose_device(names_of(place.device)[0])
    seen: set[tuple[Any, ...]] = set()
    for spec in (make_spec(**job.spec) for job in jobs):
        train = spec.train
        what = (spec.terms.dataset, train.backbone, train.frozen_side, train.feature_views,
                train.precision)  # fmt: skip
        if what not in seen:
            try:
                wanted = keep_features(spec, device, place.data_root, quiet)
            except Exception:  # of the images or the machine: another method would meet it too
                wanted = True
            if wanted:
                seen.add(what)


def _check_writable(*folders: Path) -> None:
    for folder in folders:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with TemporaryFile(dir=folder):
                pass
        except OSError as error:
            raise AnedlError(
                f"{folder}: cannot be written ({error.strerror}), so nothing was trained; name "
                f"other places with --runs and --results"
            ) from error


def _job(one: Planned, terms: Terms) -> Job:
    keywords = {
        "setting": one.spec.setting,
        "method": one.spec.method,
        "seed": one.seed,
        "development": terms.development,
        "train": dict(terms.train),
        "options": dict(one.row.options),
        "budget": terms.budget,
    }
    return Job(one.folder, keywords, one.spec.train.steps, one.spec.digest)


def _finished(runs: Path) -> dict[str, Path]:
    """Folders of finished runs by the digest of their spec."""
    found = {}
    for path in sorted(runs.rglob("results.json")):
        try:
            found[json.loads(path.read_text(encoding="utf-8"))["config_hash"]] = path.parent
        except (ValueError, KeyError, TypeError):
            continue  # not a run of ours
    return found


def _place_for(row: Row, spec: RunSpec, terms: Terms) -> tuple[Path, State]:
    """Where a run that is not finished goes on or begins; another run's folder is not touched.

    A run with options of the engine has its digest in its name, so that the plain name stays free.
    """
    variant = re.sub(
        r"[^a-z0-9.]+", "-", "-".join(f"{k}-{v}" for k, v in row.options.items()).lower()
    )
    plain = default_folder(
        spec.setting, spec.method, spec.seed, spec.development, spec.budget, terms.runs, variant
    )
    named = plain.with_name(f"{plain.name}-{spec.digest[:8]}")
    for folder in (named,) if terms.train else (plain, named):
        config = folder / "config.json"
        if not config.exists():
            return folder, "missing"
        if _digest_of(config) == spec.digest:
            return folder, "cut"
    raise AnedlError(f"{folder}: the folder of another run has this run's name; remove it")


def _digest_of(config: Path) -> str | None:
    try:
        # A user's method that has changed has another digest.
        return read_spec(config, tell=False).digest
    except AnedlError:
        return None
