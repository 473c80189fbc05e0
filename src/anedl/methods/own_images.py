"""Which method people's own images are trained with unless they say otherwise; needs no torch."""

OWN_METHOD = "anedl-plus"
