"""The client: randomizes on the user's own machine, seals, sends until the shuffler has it, and asks for estimates."""

from shufflesum.service.client.sending import Client, ContributedError, Contributions, Receipt
from shufflesum.service.client.web import RefusedError, UnreachableError, estimates_in, fetch_estimate

__all__ = [
    "Client",
    "ContributedError",
    "Contributions",
    "Receipt",
    "RefusedError",
    "UnreachableError",
    "estimates_in",
    "fetch_estimate",
]
