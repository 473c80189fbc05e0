"""What a method remembers while it trains and has no use for afterwards."""

from torch import Tensor, nn


def memory_of(method: nn.Module) -> dict[str, Tensor]:
    """The buffers that are not persistent, by name: in checkpoints, but in no saved model."""
    saved = method.state_dict().keys()
    return {name: buffer for name, buffer in method.named_buffers() if name not in saved}
