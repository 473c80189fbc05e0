"""How good a model is on an open set, and how runs with different seeds compare."""
