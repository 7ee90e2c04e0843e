"""From what iptables-save prints of a table to objects."""

from collections.abc import Iterable, Iterator
from typing import Final

from kproxy_core.model.addresses import Family
from kproxy_iptables import tree
from kproxy_iptables.objects import CHAIN_PREFIX, VERSIONS, Key, Value

_PORT: Final = " --dport "
_LEADS: Final = (f"-j {CHAIN_PREFIX}", f"-g {CHAIN_PREFIX}")


def read_table(family: Family, table: str, saved: str) -> dict[Key, Value]:
    """Return our objects in a table; others' rules are left out, but those of them that lead into our chains."""
    chains, rules = parsed(saved)
    version = VERSIONS[family]
    result: dict[Key, Value] = {}
    for chain in chains:
        own = rules.pop(chain, [])
        if table == "nat" and tree.is_branch(chain):
            result.setdefault((f"{version} nat branch", chain), "")
            _read_branch(version, chain, own, result)
        else:
            result[f"{version} {table} chain", chain] = tuple(own)
    for chain, others in rules.items():
        leading = tuple(filter(leads_to_us, others))
        if leading:
            result[f"{version} {table} hook", chain] = leading
    return result


def leads_to_us(rule: str) -> bool:
    """Whether a rule leads into a chain of ours."""
    return any(word in rule for word in _LEADS)


def parsed(saved: str) -> tuple[list[str], dict[str, list[str]]]:
    """Return our chains, and the rules of every chain, each without ``-A CHAIN``."""
    chains: list[str] = []
    rules: dict[str, list[str]] = {}
    last, last_rules = "", [""]
    for line in saved.split("\n"):
        if line.startswith("-A "):
            _, chain, rule = line.split(" ", 2) if line.count(" ") > 1 else (*line.split(" "), "")
            # A chain's rules follow one another.
            if chain != last:
                last, last_rules = chain, rules.setdefault(chain, [])
            last_rules.append(rule)
        elif line.startswith(f":{CHAIN_PREFIX}"):
            chains.append(line[1 : line.index(" ")])
    return chains, rules


def _read_branch(version: str, chain: str, rules: Iterable[str], result: dict[Key, Value]) -> None:
    for rule in rules:
        target = rule.rpartition(" -j ")[2]
        if tree.is_branch(target):
            _put(result, (f"{version} nat branch", target), f"{chain} {rule}")
        else:
            match, rest = _divided(rule)
            _put(result, (f"{version} nat rule", f"{chain} {match}"), rest)


def _divided(rule: str) -> tuple[str, str]:
    """Divide a rule of the tree behind its port; one of somebody else's making has no end."""
    start = rule.find(_PORT)
    end = rule.find(" ", start + len(_PORT)) if start >= 0 else -1
    return (rule, "") if end < 0 else (rule[:end], rule[end + 1 :])


def _put(result: dict[Key, Value], key: Key, text: str) -> None:
    """Note a rule; of two under one key both are told, so that they differ from the one that is wanted."""
    known = result.get(key)
    result[key] = f"{known}\n{text}" if known and isinstance(known, str) else text


def rules_of(key: Key, value: Value) -> Iterator[str]:
    """The rules, behind ``-A``, that an object outside of ordinary chains stands for."""
    place, name = key
    if place.endswith(" rule"):
        for rest in str(value).split("\n"):
            yield f"{name!s} {rest}".rstrip(" ")
    elif place.endswith(" branch"):
        yield from (rule for rule in str(value).split("\n") if rule)
    elif isinstance(value, tuple):
        yield from (f"{name!s} {rule}" for rule in value)
