"""What experiment 11 found of one numbering; the fields are those of the published result."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class AfterLoss:
    """What became of one key's fence when the server's data was lost."""

    fence_before_loss: int
    fence_after_loss: int
    accepted_after_loss: bool

    @property
    def goes_on(self) -> bool:
        """The fence still rises, and the resource takes it."""
        return self.fence_after_loss > self.fence_before_loss and self.accepted_after_loss


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberingCost(AfterLoss):
    """What one numbering costs, and what its loss did."""

    locks_per_s: float
    bytes_per_key: float
    bytes_per_key_after: float | None
    """For ever; `None`: not told apart from what else the server keeps."""
    counters_left: int
