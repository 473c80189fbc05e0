"""Where images come from, who of them is labelled, and how they are augmented."""
