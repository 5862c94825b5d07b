"""What goes from the poller to the screens. A newer message of a kind replaces an unread older one."""

from textual.message import Message

from leasetop.errors import LeasetopError
from leasetop.model import Snapshot


class Refreshed(Message):
    """A new snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__()
        self.snapshot = snapshot

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, Refreshed)


class Lost(Message):
    """No snapshot: the database cannot be read, for a reason in words."""

    def __init__(self, error: LeasetopError) -> None:
        super().__init__()
        self.error = error

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, Lost)
