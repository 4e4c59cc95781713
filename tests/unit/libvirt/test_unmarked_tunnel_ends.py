"""A tunnel end is made first and marked next: one cut off in between is known by its name."""

from __future__ import annotations

from dataclasses import replace

from lab.providers.libvirt import vxlan_underlay
from lab.providers.libvirt.vxlan_underlay import VxlanDevice

TOKEN = "3fa9c2d1e0b4a596"
CUT_OFF = VxlanDevice(
    "hx3fa9c2d1-clus", 7, vxlan_underlay.PORT, "198.18.0.1", True, 1500, "", False, ""
)


def test_one_that_was_never_marked_goes_with_the_lab_whose_name_it_has() -> None:
    assert vxlan_underlay._of_lab(CUT_OFF, TOKEN)
    assert not vxlan_underlay._of_lab(CUT_OFF, "0" * 16)


def test_a_stranger_s_is_left() -> None:
    assert not vxlan_underlay._of_lab(replace(CUT_OFF, alias="theirs"), TOKEN)
    assert not vxlan_underlay._of_lab(replace(CUT_OFF, port=4789), TOKEN)
    assert not vxlan_underlay._of_lab(replace(CUT_OFF, device="vxlan7"), TOKEN)
