"""GPU kernels for what a wide residual network spends its time on, and their plain twins."""

from anedl.networks.kernels.fused import can_fuse, enable_kernels, fused_features

__all__ = ["can_fuse", "enable_kernels", "fused_features"]
