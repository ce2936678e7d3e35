"""The names of ``torch.backends.quantized``: there is no quantized engine."""

engine = "none"
supported_engines = ["none"]
