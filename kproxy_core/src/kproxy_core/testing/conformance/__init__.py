"""The conformance kit: what every mode must do with real packets, as scenarios, laws and a second opinion."""

import sys

if "pytest" in sys.modules:
    # Only in modules that pytest rewrites does a failed assertion tell what was compared; they are imported after this.
    _WITH_ASSERTIONS = ("expectations", "laws", "oracle_kernel", "planted", "plugin")
    sys.modules["pytest"].register_assert_rewrite(*(f"{__name__}.{module}" for module in _WITH_ASSERTIONS))
