"""A system: Windows nodes, under another name."""

from lab.windows.system import WindowsSystem


class Example(WindowsSystem):
    """Windows, under another name."""

    name = "example"


SYSTEM = Example()
