"""Export trained models as files for search engines and ONNX Runtime, and check their scores."""
