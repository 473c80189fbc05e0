"""Settling the doubtful images of a sorted pile by hand, on a page in the browser."""
