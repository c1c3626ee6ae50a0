from __future__ import annotations

import os

# Before Flower and Ray are imported: neither may tell anybody that they are used.
os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
