"""Options that several commands share, and how they reach a command."""
