"""A stub resolver's own part of DNS: what its file says, and which names it asks for.

Pure functions on text; the messages themselves are :mod:`lab.providers.netns.dnswire`'s.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ResolverFile:
    """What a resolv.conf says. Of several name servers the first is asked, as nothing else is."""

    server: str | None
    search: tuple[str, ...]
    ndots: int


def read_resolver(text: str) -> ResolverFile:
    """Read a resolv.conf: ``nameserver``, ``search`` (the last one counts), ``options ndots:N``.

    Unknown lines are passed over and ``ndots`` is held to 0..15, as resolv.conf(5) has it.
    """
    servers: list[str] = []
    search: tuple[str, ...] = ()
    ndots = 1
    for line in text.splitlines():
        match line.split():
            case ["nameserver", server, *_]:
                servers.append(server)
            case ["search" | "domain", *domains]:
                search = tuple(domain.rstrip(".") for domain in domains)
            case ["options", *options]:
                for option in options:
                    name, _, value = option.partition(":")
                    if name == "ndots" and value.isdigit():
                        ndots = min(int(value), 15)
    return ResolverFile(servers[0] if servers else None, search, ndots)


def candidates(name: str, resolver: ResolverFile) -> tuple[str, ...]:
    """The names to ask for, in order, fully qualified with their final dot.

    A name with its final dot is asked as it is. One with at least ``ndots`` dots is asked
    as it is first and with each search domain after; any other the other way round.
    """
    if name.endswith("."):
        return (name,)
    searched = tuple(f"{name}.{domain}." for domain in resolver.search if domain)
    if name.count(".") >= resolver.ndots:
        return (f"{name}.", *searched)
    return (*searched, f"{name}.")
