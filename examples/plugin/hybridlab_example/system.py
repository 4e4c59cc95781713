"""A system: Windows nodes with another way to count drops."""

from lab.windows.system import Windows


class Example(Windows):
    """Windows, under another name."""

    name = "example"


SYSTEM = Example()
