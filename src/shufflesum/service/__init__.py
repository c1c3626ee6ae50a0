"""A deployment: client, shuffler and analyzer as separate programs that talk over HTTP."""
