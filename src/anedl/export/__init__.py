"""A trained run for use elsewhere: predictions on new images, an ONNX graph, a model card."""
