"""Trained rankers as files that search engines and ONNX Runtime read, with proof that they agree.

A model becomes one of three forms, whatever engine it is for: ``Trees`` (float32 thresholds on raw
features), ``Dense`` (layers in float64 with the standardisation folded into the first), or a graph
of ONNX. A module for each engine writes a form as the engine's files and runs these files as the
engine documents them; ``ltr.export.parity`` compares the scores before the folder comes into being.
"""
