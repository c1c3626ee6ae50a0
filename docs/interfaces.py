"""Writes the interface of both servers, as OpenAPI 3.1 for any task: `python docs/interfaces.py` (extra `service`)."""

from __future__ import annotations

from pathlib import Path

from shufflesum.service.analyzer.interface import analyzer_interface
from shufflesum.service.http.openapi import to_bytes
from shufflesum.service.shuffler.interface import shuffler_interface

DESCRIBED = {"openapi-shuffler.json": shuffler_interface, "openapi-analyzer.json": analyzer_interface}

if __name__ == "__main__":
    for name, describe in DESCRIBED.items():
        (Path(__file__).parent / name).write_bytes(to_bytes(describe()))
