"""Where the helpers of other tests are that clusters with Wine nodes use."""

import sys
from pathlib import Path

TESTS = Path(__file__).parents[2]
sys.path += [str(TESTS / "nspawn"), str(TESTS / "bundle")]
