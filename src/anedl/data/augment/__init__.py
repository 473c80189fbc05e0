"""Augmentation: random views of an image, drawn so that a run repeats itself exactly."""

from anedl.data.augment.host import HostAugment, view_generator

__all__ = ["HostAugment", "view_generator"]
