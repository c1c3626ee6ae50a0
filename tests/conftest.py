from __future__ import annotations

from hypothesis import settings

# The first call of a compiled kernel compiles it, and machines that run tests are shared: time limits would be chance.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")
