"""Run ``lab``, and write its seconds of processors and its peak memory in KiB into a file.

A process that is started by a large one counts that one's memory as its own peak: Linux keeps the
peak over exec. This one is small.

    python measured.py FILE ARGUMENTS...
"""

import resource
import subprocess
import sys
from pathlib import Path

file, *arguments = sys.argv[1:]
code = subprocess.call([sys.executable, "-m", "lab", *arguments])
usage = resource.getrusage(resource.RUSAGE_CHILDREN)
Path(file).write_text(f"{usage.ru_utime + usage.ru_stime} {usage.ru_maxrss}", encoding="ascii")
sys.exit(code)
