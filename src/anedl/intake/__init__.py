"""From somebody's folders to images that can be trained on, and an exact account of the rest."""
