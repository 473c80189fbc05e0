"""Sorting the pile: a verdict for every image, its table, clusters of the unknown, and layouts."""
