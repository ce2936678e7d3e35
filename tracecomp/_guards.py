"""Names that libraries import from ``torch._guards``."""


def active_fake_mode() -> None:
    """Return None: a recording uses real tensors."""
