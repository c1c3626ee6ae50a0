"""What travels between client, shuffler and analyzer: reports as bytes, their seals, tasks and uploads."""

from shufflesum.wire.codec import decode_reports, encode_reports
from shufflesum.wire.keys import generate_private_key, load_private_key, load_public_key, write_key_pair
from shufflesum.wire.sealing import SEALED_BYTES, WIRE_VERSION, Opened, open_many, seal_info, seal_many
from shufflesum.wire.task import (
    UPLOAD_HEADER_BYTES,
    UPLOAD_ID_BYTES,
    Task,
    TaskError,
    Upload,
    UploadError,
    check_address,
    parse_time,
)
from shufflesum.wire.workers import Opener, Sealer

__all__ = [
    "SEALED_BYTES",
    "UPLOAD_HEADER_BYTES",
    "UPLOAD_ID_BYTES",
    "WIRE_VERSION",
    "Opened",
    "Opener",
    "Sealer",
    "Task",
    "TaskError",
    "Upload",
    "UploadError",
    "check_address",
    "decode_reports",
    "encode_reports",
    "generate_private_key",
    "load_private_key",
    "load_public_key",
    "open_many",
    "parse_time",
    "seal_info",
    "seal_many",
    "write_key_pair",
]
