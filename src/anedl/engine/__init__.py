"""Training: one loop, its step, its state on disk and its log."""
