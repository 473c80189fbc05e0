"""What the averaged model makes of the whole pool."""

from collections.abc import Callable

from torch import Tensor

from anedl.engine.inference import outputs_of
from anedl.engine.step import Stepper
from anedl.errors import ConfigError
from anedl.methods.base import Outputs


def pool_outputs(
    stepper: Stepper, step: int, ask: Callable[[Tensor], Outputs] | None = None
) -> Outputs:
    """What the averaged model says of every pool image at `step`, in the view that is ranked.

    `ask` is its function that says it; None: `outputs`.
    """
    images = stepper.stream.pool(stepper.average.selection_view, step)
    return outputs_of(stepper.average, images, stepper.precision, ask=ask)


def select(stepper: Stepper, step: int) -> tuple[Tensor | None, Tensor]:
    """Ask the averaged model which pool images join self-training; None means all of them.

    With it the class that it sees in each pool image, (N,); in both it may go by what it said
    before, too.
    """
    outputs = stepper.method.recall(pool_outputs(stepper, step, stepper.average.opinion))
    selection = stepper.average.select(outputs)
    predicted = outputs.logits.argmax(1)
    if selection is None:
        return None, predicted
    positions = selection.positions
    first, last = (int(end) for end in positions.aminmax()) if len(positions) else (0, 0)
    if first < 0 or last >= len(predicted):
        raise ConfigError(
            f"the method's `select` named pool images {first} to {last}, and the pool has 0 to "
            f"{len(predicted) - 1}"
        )
    return positions, predicted
