"""How large a store in a file is, and how much more it can hold."""

from __future__ import annotations

import shutil
from pathlib import Path

from shufflesum.service.stores.store import StoreError, Usage

__all__ = ["usage_of_file"]


def usage_of_file(path: Path) -> Usage:
    """Of a store in one file, with its write-ahead log."""
    try:
        used = sum(file.stat().st_size for file in (path, path.with_name(f"{path.name}-wal")) if file.exists())
        return Usage(used, shutil.disk_usage(path.parent).free)
    except OSError as error:
        raise StoreError("store-unavailable", f"the store {path} cannot be measured: {error.strerror}") from error
