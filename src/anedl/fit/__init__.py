"""Two folders in, answers out: a classifier, a threshold, and the pile sorted.

`anedl.fit` is this package and a function at once: whoever writes `anedl.fit(labelled, pile)` calls
`anedl.fit.python.fit`, in whatever order the package's modules were imported.
"""

import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anedl.fit.flow import Fitted


class _CallablePackage(ModuleType):
    def __call__(
        self,
        labelled: str | Path,
        pile: str | Path,
        out: str | Path | None = None,
        **wishes: Any,
    ) -> "Fitted":
        from anedl.fit.python import fit

        return fit(labelled, pile, out, **wishes)


sys.modules[__name__].__class__ = _CallablePackage
