"""Trained rankers as files that search engines and ONNX Runtime read, compared with the model.

``Trees`` (float32 thresholds on raw features) and ``Dense`` (float64 layers, the standardisation
folded into the first) are the forms from which a module for each engine writes its texts; ONNX has
a graph. The tests score the texts as the engines document them.
"""
