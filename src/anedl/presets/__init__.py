"""Ready-made experiments, each a documented function."""
