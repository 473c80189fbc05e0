"""A user's file, run as a module from bytes that were read before: those whose hash is recorded."""

import ast
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType

from anedl.errors import ConfigError

_PREFIX = "anedl_user_method_"  # of the modules' names


def load_file(path: Path, read_from: Path, content: bytes, sha256: str) -> ModuleType:
    """Run a file, as any Python file one imports; the same bytes only once.

    So two looks at a file give the same class. `path` is the file's own, by which it finds what
    lies beside it; its bytes may have been read from a copy, whose lines tracebacks then show.
    """
    name = f"{_PREFIX}{path.stem}_{sha256[:16]}"
    if (known := sys.modules.get(name)) is not None:
        return known
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look their module up by name while they are made.
    sys.modules[name] = module
    try:
        # Not by the loader: a cached byte code could be of other bytes than were hashed.
        code = compile(content, str(read_from), "exec")
        _check_helpers(content, path.parent)
        with _importable(path.parent):
            exec(code, module.__dict__)
    except BaseException:
        del sys.modules[name]
        raise
    return module


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """Let a file import what lies beside it, as it could if it were run by itself."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        with suppress(ValueError):  # the file has taken it out
            sys.path.remove(str(folder))


def _check_helpers(content: bytes, folder: Path) -> None:
    """Refuse a helper that has the name of another method's.

    A name is one module in Python: the second method would get the first one's without a word.
    """
    users = [module for name, module in list(sys.modules.items()) if name.startswith(_PREFIX)]
    others = {Path(str(module.__file__)).parent for module in users} - {folder}
    for name in _imported(content):
        helpers = (folder / f"{name}.py", folder / name / "__init__.py")
        helper = next(filter(Path.is_file, helpers), None)
        loaded = getattr(sys.modules.get(name), "__file__", None)
        if helper is None or loaded is None or helper.resolve() == Path(loaded).resolve():
            continue
        if any(Path(loaded).is_relative_to(other) for other in others):
            raise ConfigError(
                f"it imports {name!r}, of which there are two, {helper} and, for another method, "
                f"{loaded}: give one of them another name"
            )


def _imported(content: bytes) -> set[str]:
    """The first part of every name that a file imports."""
    names = set()
    for node in ast.walk(ast.parse(content)):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names
