"""The operations behind the commands, on the user's journal and providers."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from lab._errors import InventoryError, UsageError
from lab._log import say
from lab.lifecycle.interruption import terminable
from lab.lifecycle.names import is_attached, parse_age, removal, unknown_lab, up_command
from lab.lifecycle.providers import DEFAULT, Providers, choose, chosen, real_machines
from lab.providers.provider import CLUSTER, MACHINES, Pods, Provider
from lab.state.directory import state_directory
from lab.state.failure import FullError
from lab.state.lock import lab_lock
from lab.state.rows import LabRow
from lab.state.store import Store

if TYPE_CHECKING:
    from lab.inventory.inventory import Inventory
    from lab.lifecycle import down, gc, status, up
    from lab.lifecycle.compilation import Compiled
    from lab.lifecycle.open_lab import OpenLab


Say = Callable[[str], None]
BANNER = "banner"
"""The option that stores a lab's banner, so that commands can print it without its scenario."""


@dataclass(frozen=True, slots=True)
class LabRequest:
    """A request of ``lab up`` or ``lab plan``."""

    scenario: str
    """Name of a shipped scenario, a path, or a spec string."""
    name: str | None = None
    provider: str | None = None
    only: str | None = None
    rules_off: tuple[str, ...] = field(default=())
    pods: Pods | None = None
    """None for the provider's default."""

    def options(self) -> dict[str, object]:
        """Options stored with the lab, so that later commands compile it the same way."""
        kept: dict[str, object] = {}
        if self.only:
            kept["only"] = self.only
        if self.pods:
            kept["pods"] = self.pods
        if self.rules_off:
            kept["windows_rules_off"] = sorted(set(self.rules_off))
        return kept

    def command(self) -> str:
        """The ``lab up`` command line of this request."""
        return up_command(self.scenario, self.name, self.provider, self.options())


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request with its scenario compiled and its provider chosen."""

    name: str
    compiled: Compiled
    provider: Provider
    banner: str
    request: up.CompiledRequest

    def notes(self) -> tuple[str, ...]:
        """Notes for the user: keys of their own file that are ignored, and what is unverified."""
        if MACHINES not in self.provider.abilities:
            from lab.scenario.loader import SpecString, is_shipped  # noqa: PLC0415  they have it

            wanted = self.compiled.wanted
            if isinstance(wanted, Path) and is_shipped(wanted):
                return ()  # a shipped file has keys for every provider
            chosen = {"image"} if isinstance(wanted, SpecString) else set()  # by lab
            keys = self.compiled.scenario.real_machine_keys()
            ignored = ", ".join(f"'{key}'" for key in keys if key not in chosen)
            note = f"note: {ignored} of nodes: for real machines only, ignored by"
            return (f"{note} '{self.provider.name}'",) if ignored else ()
        from lab.topology.footprint import network_addons  # noqa: PLC0415  plug-ins

        addon = network_addons().get(self.compiled.intent.topology)
        if addon is None or self.compiled.intent.kubernetes is None:
            return ()
        why = addon.unverified(self.compiled.intent)
        return (f"note: unverified: {why}",) if why else ()


def prepare(request: LabRequest) -> Prepared:
    """Compile the scenario and choose its provider.

    Raises ScenarioError with every finding in the scenario at once. Raises UsageError for an
    unknown scenario, provider or rule.
    """
    from lab.lifecycle import up  # noqa: PLC0415  only this operation needs it
    from lab.lifecycle.compilation import compile_scenario  # noqa: PLC0415  'down' need not read scenarios
    from lab.scenario.loader import text_of  # noqa: PLC0415  the same

    provider = choose(providers(request.options()), request.provider or default_provider())
    _require_pods(request, provider)
    pods = request.pods or provider.pods
    real = MACHINES in provider.abilities
    compiled = compile_scenario(request.scenario, request.only, None, pods, real=real)
    options = request.options()
    if pods == "kubernetes":
        options["pods"] = pods
    node_mtu = provider.node_mtu(compiled.plan.node_mtu)
    if node_mtu < compiled.plan.node_mtu:
        compiled = compile_scenario(request.scenario, request.only, node_mtu, pods, real=real)
        options["node_mtu"] = node_mtu
    name = compiled.scenario.name if request.name is None else request.name
    banner = provider.banner(compiled.intent)
    return Prepared(
        name=name,
        compiled=compiled,
        provider=provider,
        banner=banner,
        request=up.CompiledRequest(
            name=name,
            scenario_text=text_of(compiled.wanted),
            scenario_path=str(
                compiled.wanted.resolve() if isinstance(compiled.wanted, Path) else compiled.wanted
            ),
            plan=compiled.plan,
            intent=compiled.intent,
            command=request.command(),
            options={**options, BANNER: banner},
        ),
    )


def _require_pods(request: LabRequest, provider: Provider) -> None:
    if request.pods == "kubernetes" and CLUSTER not in provider.abilities:
        raise UsageError(
            f"bringing '{request.scenario}' up with the pods of a Kubernetes cluster",
            f"provider '{provider.name}' has no machines that could run one",
            "--provider nspawn or libvirt, or leave '--pods' out",
        )


def default_provider() -> str:
    """The provider that is used if none is requested.

    Raises InventoryError with every finding in the inventory.
    """
    return chosen(None, _load_inventory())


def bring_up(prepared: Prepared, say: Say) -> up.UpResult:
    """Bring the lab up; see :func:`lab.lifecycle.up.up` for what it raises."""
    from lab.lifecycle import up  # noqa: PLC0415  only this operation needs it

    with opened_store() as store:
        return up.up(prepared.request, prepared.provider, store, say)


def preview(prepared: Prepared) -> tuple[up.Decision, ...]:
    """The steps that bringing the lab up would run now, and why."""
    from lab.lifecycle import up  # noqa: PLC0415  only this operation needs it

    with opened_store() as store:
        return up.preview(prepared.request, prepared.provider, store)


def check(prepared: Prepared) -> None:
    """Check that the lab can run here; see :func:`lab.lifecycle.up.check` for what it raises."""
    from lab.lifecycle import up  # noqa: PLC0415  only this operation needs it

    with opened_store() as store:
        up.check(prepared.request, prepared.provider, store)


def lab_name(written: str) -> str:
    """The name of the lab that ``written`` means: a lab's name, or the scenario it was made from.

    Raises UsageError when several labs were made from the scenario, and none has its name. Raises
    ScenarioError when no lab was made from the scenario, and the scenario's name cannot be read.
    """
    if not any(mark in written for mark in "/.,"):
        return written  # neither a path nor a spec string with options
    from lab.scenario.loader import load, meant  # noqa: PLC0415  'lab down NAME' reads none

    made: list[str] = []
    with suppress(FullError), opened_store() as store:
        paths = {written, str(Path(written).resolve())}
        made = [row.name for row in store.labs() if row.scenario_path in paths]
    if len(made) == 1:
        return made[0]
    own = load(meant(written)).name
    if made and own not in made:
        raise UsageError(
            f"looking for the lab of '{written}'",
            f"several labs were made from it: {', '.join(made)}",
            "give the lab's name",
        )
    return own


def open_running(name: str) -> OpenLab:
    """Open a lab of the user's journal whose machines run.

    Raises UsageError, with the nearest name, when there is no such lab. Raises BrokenError when
    its machines do not run.
    """
    opened = open_any(lab_name(name))
    opened.require_running()
    return opened


def open_any(name: str) -> OpenLab:
    """Open a lab of the user's journal, whatever the state of its machines.

    Raises UsageError, with the nearest name, when there is no such lab.
    """
    store = Store(state_directory(os.environ))
    from lab.lifecycle import open_lab  # noqa: PLC0415  'down' need not read scenarios

    row = store.lab(name)
    return open_lab.open_any(name, providers(row.options if row else {}), store)


@dataclass(frozen=True, slots=True)
class SuspendResult:
    """The result of ``suspend``."""

    lab: str
    saved: tuple[str, ...]
    seconds: float


def suspend(name: str, say: Say) -> SuspendResult:
    """Save every machine of the lab to disk.

    Raises UsageError when its machines have no memory of their own (namespaces). Raises BrokenError
    when another command holds the lab, or a machine cannot be saved.
    """
    begun = time.monotonic()
    opened = open_any(name)
    opened.require_own(f"suspending lab '{name}'", f"'lab detach {name}' takes its pods away")
    machines = real_machines(opened.provider, f"suspending lab '{name}'")
    with terminable(), lab_lock(opened.handle.directory, f"lab suspend {name}", say=say):
        saved = machines.suspend(opened.handle, opened.intent)
    return SuspendResult(name, saved, time.monotonic() - begun)


def take_down(name: str, say: Say, *, attached: bool = False) -> down.DownResult:
    """Take a lab down; see :func:`lab.lifecycle.down.down` for what it raises.

    ``attached``: whether a lab on an existing cluster is meant; UsageError if it is not.
    """
    from lab.lifecycle import down  # noqa: PLC0415  only this operation needs it

    state = state_directory(os.environ)
    try:
        store = Store(state)
    except FullError as error:
        raise down.down_unwritten(name, _make_providers(say), state, error, say) from error
    with store:
        _require_kind(store.lab(name), attached=attached)
        return down.down(name, _make_providers(say), store, say)


def forget(name: str, say: Say) -> tuple[down.DownResult, LabRow | None]:
    """Take a lab on an existing cluster out of the journal, without asking the cluster.

    Returns the journal's entry, too. Raises as :func:`take_down` does.
    """
    from lab.lifecycle import down  # noqa: PLC0415  only this operation needs it

    with opened_store() as store:
        row = store.lab(name)
        _require_kind(row, attached=True)
        return down.forget(name, store, say), row


def _require_kind(row: LabRow | None, *, attached: bool) -> None:
    """Raise UsageError if the lab is up, and is or is not on an existing cluster."""
    if row and row.status != "down" and is_attached(row) != attached:
        raise UsageError(
            f"taking lab '{row.name}' away",
            "it is on an existing cluster" if is_attached(row) else "its machines are its own",
            removal(row),
        )


def runs(name: str) -> tuple[str, ...]:
    """The directories of a lab's runs, oldest first, even if the lab is down."""
    with opened_store() as store:
        kept = tuple(str(store.run_directory(name, run.id)) for run in store.runs(name))
        if not kept and store.lab(name) is None:
            labs = [row.name for row in store.labs()]
            raise unknown_lab(f"looking for runs of lab '{name}'", name, labs)
        return kept


def only_lab(action: str) -> str:
    """The name of the only lab that is not down.

    Raises UsageError if there is none, or several.
    """
    with opened_store() as store:
        labs = [row.name for row in store.labs()]
    if len(labs) == 1:
        return labs[0]
    raise UsageError(
        action,
        f"no lab is named, and there are {len(labs)}" if labs else "there are no labs",
        f"name one of {', '.join(labs)}" if labs else "'lab up overlay' makes one",
    )


def is_known(name: str) -> bool:
    """Whether the journal has a lab of this name that is not down."""
    with opened_store() as store:
        row = store.lab(name)
    return row is not None and row.status != "down"


def is_on_existing_cluster(name: str) -> bool:
    """Whether a lab that is not down is on an existing cluster."""
    with opened_store() as store:
        row = store.lab(name)
    return row is not None and row.status != "down" and is_attached(row)


def lab_status(name: str) -> status.LabStatus:
    """The status of one lab."""
    from lab.lifecycle import status  # noqa: PLC0415  only this operation needs it

    with opened_store() as store:
        return status.status(name, _make_providers(say), store)


def list_labs() -> tuple[status.LabStatus, ...]:
    """The status of every lab."""
    from lab.lifecycle import status  # noqa: PLC0415  only this operation needs it

    with opened_store() as store:
        return status.list_labs(_make_providers(say), store)


def collect(older_than: str | None, yes: bool, all_users: bool, say: Say) -> gc.GcResult:
    """Find, and with ``yes`` remove, labs no longer needed; ``older_than`` as in ``"2d"``."""
    from lab.lifecycle import gc  # noqa: PLC0415  only this operation needs it

    age = None if older_than is None else parse_age(older_than)
    with opened_store() as store:
        return gc.gc(gc.GcRequest(age, yes, all_users), _make_providers(say), store, say)


def prune(keep: gc.Kept, yes: bool, say: Say) -> gc.Surplus:
    """Find, and with ``yes`` remove, runs, nights and evidence in excess of the numbers to keep."""
    from lab.lifecycle import gc  # noqa: PLC0415  only this operation needs it

    with opened_store() as store:
        return gc.prune(store, keep, say, yes=yes)


def banner(name: str) -> str:
    """One sentence about a lab, up or down: which provider, and what is emulated."""
    with opened_store() as store:
        row = store.lab(name)
    if row is not None and row.status != "down" and BANNER in row.options:
        return str(row.options[BANNER])
    return providers().banner(row.provider if row else DEFAULT)


def providers(options: Mapping[str, object] | None = None) -> Providers:
    """Every provider, configured by the options of a lab."""
    off = (options or {}).get("windows_rules_off", ())
    assert isinstance(off, list | tuple), "written by LabRequest.options"
    return Providers(
        windows_rules_off=frozenset(str(rule) for rule in off),
        inventory=_load_inventory,
    )


def _make_providers(say: Say) -> Providers:
    """Every provider, for commands such as 'lab down' that a broken inventory must not stop.

    If the inventory is broken, hypervisors that only it names are skipped, with a note;
    hypervisors in a lab's record are still used.
    """

    @cache
    def readable() -> Inventory | None:
        try:
            return _load_inventory()
        except InventoryError as error:
            say(f"note: {error.lines[0]}; hypervisors that only the inventory names are not seen")
            return None

    return Providers(inventory=readable)


def _load_inventory() -> Inventory | None:
    from lab.inventory.loader import current  # noqa: PLC0415  namespaces need no inventory

    return current(os.environ, Path.cwd())


@contextmanager
def opened_store() -> Iterator[Store]:
    """Open the journal of the user's state directory for the block."""
    with Store(state_directory(os.environ)) as store:
        yield store
