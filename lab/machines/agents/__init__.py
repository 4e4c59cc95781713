"""One machine of the Intent per Linux computer, with its pods as namespaces there.

``control``, ``fleet`` and ``campaign`` run on the controller. ``control`` ships the rest to the
computer as one archive, which ``bootstrap`` starts; ``agent`` implements its verbs.
"""
