"""Which method is trained unless another is named; needs no torch."""

DEFAULT_METHOD = "anedl-plus"
