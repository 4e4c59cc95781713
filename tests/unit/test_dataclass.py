"""The quick dataclass behaves as the one of the standard library."""

import copy
import dataclasses
import pickle
import subprocess
import sys
from dataclasses import FrozenInstanceError, field, replace

import pytest

import lab._dataclass


@lab._dataclass.dataclass(frozen=True, slots=True)
class Quick:
    name: str
    mtu: int = 1500
    names: list[str] = field(default_factory=list)
    secret: str = field(default="x", repr=False, compare=False)


@lab._dataclass.dataclass(frozen=True, slots=True)
class QuickChild(Quick):
    """A derived one."""

    more: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Usual:
    name: str
    mtu: int = 1500
    names: list[str] = field(default_factory=list)
    secret: str = field(default="x", repr=False, compare=False)


@dataclasses.dataclass(frozen=True, slots=True)
class UsualChild(Usual):
    """A derived one."""

    more: tuple[str, ...] = ()


PAIRS = pytest.mark.parametrize(
    ("quick", "usual"), [(Quick, Usual), (QuickChild, UsualChild)], ids=["base", "derived"]
)


@PAIRS
def test_fields_defaults_and_text_are_those_of_the_standard_library(quick, usual):
    made, like = quick("eth0", names=["a"]), usual("eth0", names=["a"])
    assert dataclasses.asdict(made) == dataclasses.asdict(like)
    assert repr(made) == repr(like).replace("Usual", "Quick")
    assert quick.__match_args__ == usual.__match_args__
    assert quick("eth0").names is not quick("eth0").names


@PAIRS
def test_equality_and_hash_are_of_the_compared_fields_and_the_class(quick, usual):
    for kind in (quick, usual):
        assert kind("eth0", 9000) == kind("eth0", 9000, secret="y") != kind("eth1", 9000)
        assert kind("eth0") != ("eth0", 1500, [])
    assert Quick("eth0") != QuickChild("eth0")
    assert hash(quick("eth0", names=())) == hash(quick("eth0", names=(), secret="y"))


@PAIRS
def test_neither_a_field_nor_a_new_name_can_be_set_or_deleted(quick, usual):
    for made in (quick("eth0"), usual("eth0")):
        with pytest.raises(FrozenInstanceError, match="cannot assign to field 'mtu'"):
            made.mtu = 9000
        with pytest.raises(FrozenInstanceError, match="cannot delete field 'mtu'"):
            del made.mtu
    with pytest.raises(AttributeError):
        quick("eth0").other = 1


@pytest.mark.parametrize("arguments", [(), (1, 2, 3, 4, 5, 6)])
@PAIRS
def test_wrong_arguments_are_refused_with_the_usual_words(quick, usual, arguments):
    with pytest.raises(TypeError) as refusal:
        quick(*arguments)
    with pytest.raises(TypeError) as wanted:
        usual(*arguments)
    assert str(refusal.value) == str(wanted.value).replace("Usual", "Quick")


@PAIRS
def test_copies_of_all_kinds_are_equal(quick, usual):
    del usual
    made = quick("eth0", names=["a"])
    copies = (copy.copy(made), copy.deepcopy(made), pickle.loads(pickle.dumps(made)))
    assert all(copied == made and copied is not made for copied in copies)
    assert replace(made, mtu=1) == quick("eth0", 1, ["a"])


def test_a_method_of_the_class_itself_is_kept():
    @lab._dataclass.dataclass(frozen=True, slots=True)
    class Named:
        name: str

        def __repr__(self):
            return "own"

    assert repr(Named("a")) == "own"


def test_other_options_and_post_init_are_left_to_the_standard_library():
    @lab._dataclass.dataclass
    class Changing:
        name: str

    @lab._dataclass.dataclass(frozen=True, slots=True)
    class Checked:
        name: str

        def __post_init__(self):
            object.__setattr__(self, "name", self.name.upper())

    changing = Changing("a")
    changing.name = "b"
    assert (changing.name, Checked("a").name) == ("b", "A")


COUNT = """
import sys
import lab.cli.up, lab.lifecycle.up, lab.providers.netns.provider, lab.providers.netns.bring_up
from lab.lifecycle.compilation import compile_scenario
compile_scenario("overlay")
for name, module in [*sys.modules.items()]:
    for kind in vars(module).values() if name.startswith("lab.") else ():
        own = vars(kind) if isinstance(kind, type) and kind.__module__ == name else {}
        if "__dataclass_fields__" in own and own["__eq__"].__code__.co_filename == "<string>":
            print(f"{name}.{kind.__name__}")
"""
MOST_COMPILED = 25
"""Those with other options: not frozen, without slots, or with ``__post_init__``."""


def test_few_dataclasses_that_lab_up_imports_have_every_method_compiled():
    ran = subprocess.run(
        [sys.executable, "-c", COUNT], capture_output=True, text=True, check=True, timeout=60
    )
    assert 0 < len(ran.stdout.split()) <= MOST_COMPILED, ran.stdout
