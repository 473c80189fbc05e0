"""Two folders in, answers out: a classifier, a threshold, and the pile sorted."""
