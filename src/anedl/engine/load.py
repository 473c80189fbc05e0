"""The problem that a spec speaks of: a setting's data, or a user's own images beside the run."""

from pathlib import Path

from anedl.engine.own import own_problem
from anedl.engine.problem import Problem, load_problem
from anedl.engine.spec import RunSpec


def problem_of(spec: RunSpec, folder: Path, data_root: Path | None = None) -> Problem:
    """Load the data of a run in `folder`; a setting's are looked for below `data_root`."""
    if spec.own is not None:
        return own_problem(spec.own, folder)
    return load_problem(spec.terms, spec.fold, spec.development, spec.pool_limit, data_root)
