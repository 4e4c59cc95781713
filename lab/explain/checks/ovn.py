"""A logical network of OVN: its databases and each chassis' Open vSwitch.

The databases are asked, and fixed, on the central machine. The difference is the node's whose
switch or port it is, and the central machine's where it is everybody's.
"""

from __future__ import annotations
