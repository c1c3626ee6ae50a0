"""The command line with a domain and a mechanism more: `python -m tests.extension run FILE --angles COLUMN`."""

from __future__ import annotations

from tests.extension.registration import register_all

register_all()

from shufflesum.cli import main  # noqa: E402  # options are made of what is registered by then

main()
