"""Trained rankers as files that search engines and ONNX Runtime read, compared with the model.

A model becomes one of three forms, whatever engine it is for: ``Trees`` (float32 thresholds on raw
features), ``Dense`` (layers in float64 with the standardisation folded into the first), or a graph
of ONNX. A module for each engine writes a form as the engine's files; ``ltr.export.parity``
compares the scores of graph, native file, trees or layers before the folder is moved to its place.
The tests score the texts as the engines document them.
"""
