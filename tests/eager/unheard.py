"""What has a say in operators, left out of account."""

from __future__ import annotations


class Unheard(list[None]):
    """Stands for ``use.begun`` where tests before have defined classes with a say in operators, for good."""

    def __init__(self) -> None:
        super().__init__([None] * 10_000)  # arrays without memory that tests before have left may go meanwhile

    def __bool__(self) -> bool:
        return False
