"""What both servers share: HTTP, problem documents, addresses, the secret between them."""
