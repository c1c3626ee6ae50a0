"""The paper's evaluation repeated, and what a certified guarantee changes: research, no part of the package."""
