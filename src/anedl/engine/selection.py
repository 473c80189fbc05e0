"""What the averaged model makes of the whole pool."""

from collections.abc import Callable

from torch import Tensor

from anedl.engine.contract import check_outputs, check_selection
from anedl.engine.inference import outputs_of
from anedl.engine.step import Stepper
from anedl.errors import ConfigError
from anedl.methods.base import Outputs, no_member
from anedl.views import View


def pool_outputs(
    stepper: Stepper, step: int, ask: Callable[[Tensor], Outputs] | None = None
) -> Outputs:
    """What the averaged model says of every pool image at `step`, in the view that is ranked.

    `ask` is its function that says it; None: `outputs`.
    """
    view = stepper.average.selection_view
    if not isinstance(view, View):
        raise ConfigError(f"the method's `selection_view`: {no_member(view, View)}")
    images = stepper.stream.pool(view, step)
    return outputs_of(stepper.average, images, stepper.precision, ask=ask)


def select(stepper: Stepper, step: int) -> tuple[Tensor | None, Tensor]:
    """Ask the averaged model which pool images join self-training; None means all of them.

    With it the class that it sees in each pool image, (N,); in both it may go by what it said
    before, too.
    """
    said = pool_outputs(stepper, step, stepper.average.opinion)
    outputs = stepper.method.recall(said)
    check_outputs(outputs, len(said.logits), stepper.method.task.classes, "recall")
    selection = stepper.average.select(outputs)
    predicted = outputs.logits.argmax(1)
    if selection is None:
        return None, predicted
    check_selection(selection, len(predicted))
    return selection.positions, predicted
