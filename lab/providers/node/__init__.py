"""One machine of the Intent on a Linux computer of its own, its pods as namespaces there.

``control`` and ``fleet`` run where the lab is run from. The rest is shipped to the computer
as one archive (``archive``), and started by ``bootstrap``; ``agent`` has its verbs.
"""
