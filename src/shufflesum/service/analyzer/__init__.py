"""The analyzer as a server: counts whole batches and answers with estimates."""
