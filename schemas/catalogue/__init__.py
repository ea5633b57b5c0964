"""The failure catalogue: what breaks, what notices it, who repairs it, and what stays unproven after the repair."""

from schemas.catalogue.model import OWN, Failure, Family
from schemas.catalogue.reading import by_id, failures

__all__ = ["OWN", "Failure", "Family", "by_id", "failures"]
