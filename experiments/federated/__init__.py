"""Federated training under every kind of privacy, on the same clients at the same clip (docs/federated.md)."""
