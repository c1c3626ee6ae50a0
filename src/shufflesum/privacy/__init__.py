"""Privacy accounting: numbers in, numbers out; no user data, no plan."""

from __future__ import annotations

from shufflesum.privacy import blanket, composition, published
from shufflesum.privacy.guarantees import Interval, Protocol, honest_users
from shufflesum.privacy.local import local_epsilon

__all__ = ["Interval", "Protocol", "blanket", "composition", "honest_users", "local_epsilon", "published"]
