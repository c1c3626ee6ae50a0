"""The command line with a domain and a mechanism more: `python -m tests.extension run FILE --angles COLUMN`.

Several commands with `then` between them run one after another, up to the first that fails; a form feed ends what each
prints.
"""

from __future__ import annotations

import itertools
import sys

from tests.extension.registration import register_all

register_all()

from shufflesum.cli import main  # noqa: E402  # options are made of what is registered by then

for words, command in itertools.groupby(sys.argv[1:], lambda word: word != "then"):
    if words:
        sys.argv[1:] = command
        try:
            main()
        except SystemExit as ended:
            if ended.code:
                raise
        print("\f", end="", flush=True)
