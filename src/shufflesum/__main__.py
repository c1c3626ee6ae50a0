"""`python -m shufflesum`: the same commands, where the script is not on the path."""

from __future__ import annotations

from shufflesum.cli import main

if __name__ == "__main__":
    main()
