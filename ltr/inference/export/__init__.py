"""Trained rankers as files that search engines and ONNX Runtime read, compared with the model."""
