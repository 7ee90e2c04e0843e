"""The text that takes everything of ours out of a table, whichever version of us made it."""

from attrs import frozen

from kproxy_iptables.codec import leads_to_us, parsed


@frozen(kw_only=True)
class TableClearance:
    """What is ours in a table, and the text for iptables-restore that removes it."""

    table: str
    chains: int
    rules: int
    text: str


def clearance(table: str, saved: str) -> TableClearance | None:
    """Work it out from what iptables-save prints; None where nothing is ours.

    A rule of somebody else's that leads to a chain of ours cannot stay when the chain goes.
    """
    chains, rules = parsed(saved)
    own = {chain: rules.pop(chain, []) for chain in chains}
    leading = [f"-D {chain} {rule}" for chain, others in rules.items() for rule in others if leads_to_us(rule)]
    if not own and not leading:
        return None
    lines = [f"*{table}", *leading, *(f"-F {chain}" for chain in own), *(f"-X {chain}" for chain in own), "COMMIT"]
    return TableClearance(
        table=table, chains=len(own), rules=len(leading) + sum(map(len, own.values())), text="\n".join(lines) + "\n"
    )
