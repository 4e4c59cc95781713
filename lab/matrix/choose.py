"""The cells that a person names: by id, or by their two endpoints. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lab._errors import UsageError
from lab._log import listed
from lab.matrix.cell import Cell, Endpoint
from lab.matrix.cells import Matrix

_NEAR = 3


def choose_cells(  # noqa: PLR0913  a question has as many parts
    matrix: Matrix,
    source: str,
    target: str | None,
    *,
    protocol: str | None = None,
    size: str | None = None,
    action: str,
) -> tuple[Cell, ...]:
    """The cells between two endpoints as named in cell ids, or one cell by id.

    Parameters
    ----------
    matrix
        The cells of the scenario.
    source
        The source; a cell id if there is no ``target``.
    target
        The target.
    protocol, size
        Only cells with this protocol and size.
    action
        The activity, for the error.

    Raises
    ------
    UsageError
        If there are none; with the nearest endpoint names.

    """
    asking = {endpoint.name: endpoint for grid in matrix.grids for endpoint in grid.sources}
    if target is None:
        if source in asking:
            why = f"DST is missing: '{source}' is an endpoint, not the id of a cell"
            raise UsageError(action, why, f"name the target after '{source}'")
        return (_by_id(matrix, source, action),)
    if source not in asking:
        raise no_such_endpoint(
            action, source, f"no cell has the source '{source}'", asking.values()
        )
    from_source = list(_cells_from(matrix, source))
    of_pair = [cell for cell in from_source if cell.target.name == target]
    if not of_pair:
        why = f"no cell is from '{source}' to '{target}'"
        raise no_such_endpoint(action, target, why, [cell.target for cell in from_source], source)
    wanted = tuple(
        cell for cell in of_pair if protocol in {None, cell.protocol} and size in {None, cell.size}
    )
    if not wanted:
        had = ", ".join(f"{cell.protocol.upper()} {cell.size}" for cell in of_pair)
        raise UsageError(action, "no cell has this protocol and size", f"the matrix has {had}")
    return wanted


def _by_id(matrix: Matrix, cell_id: str, action: str) -> Cell:
    cell = matrix.find(cell_id)
    if cell is None:
        example = next(matrix.cells()).id
        raise UsageError(
            action,
            "unknown cell id",
            f"give an id as 'lab test' prints it, such as '{example}', or SRC and DST",
        )
    return cell


def _cells_from(matrix: Matrix, source: str) -> Iterator[Cell]:
    for grid in matrix.grids:
        for asking in grid.sources:
            for asked_for in grid.targets if asking.name == source else ():
                if source not in asked_for.excluded:
                    path = asked_for.path(asking)
                    yield from (grid.cell(path, variant) for variant in grid.variants_of(asked_for))


def no_such_endpoint(
    action: str, name: str, why: str, endpoints: Iterable[Endpoint], source: str = ""
) -> UsageError:
    """The error for an unknown name; an address or an extended name is resolved."""
    from difflib import get_close_matches  # noqa: PLC0415  only a wrong name pays for it

    ends = [*endpoints]
    known = {end.name for end in ends}
    near = list(dict.fromkeys(end.name for end in ends if _is(end, name)))[:_NEAR]
    near = near or get_close_matches(name, known, n=_NEAR)
    meant = " or ".join(f"'{close_name}'" for close_name in near)
    hint = f"did you mean {meant}? " if near else ""
    if name == source:
        why = "source and target are the same"
    return UsageError(action, why, f"{hint}there are {listed(sorted(known))}")


def _is(endpoint: Endpoint, name: str) -> bool:
    """Whether a name that is in no cell is the endpoint's address or an alternative name."""
    host, _, port = name.lower().rstrip(".").partition(":")
    if port and port == str(endpoint.port) and endpoint.kind == "nodeport":
        return host in {endpoint.address, endpoint.name.partition(":")[0]}
    plain = endpoint.name.rstrip(".")
    return name.lower().rstrip(".") == plain or (
        host in {plain, endpoint.address}
        and port in {"", str(endpoint.port)}
        and endpoint.kind != "nodeport"
    )
