"""The training methods, one file each, listed here by name."""
