"""Architectures of torchvision and transformers, out to ONNX and in from PyTorch's own exporter."""
