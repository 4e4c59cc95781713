"""hybridlab: a lab and test harness for Kubernetes clusters that mix Linux and Windows nodes.

The flow has one direction; a package imports only packages to its left::

    scenario -> plan -> topology (Intent) -> providers -> matrix -> suites -> reports

``state`` keeps the journal, ``lifecycle`` joins the parts into up, test and down,
and ``cli`` parses, calls and prints.
"""
