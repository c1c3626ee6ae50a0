"""A domain and a mechanism defined outside the package: each is registered by one line, and nothing else is touched."""
