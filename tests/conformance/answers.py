"""Answers of both allocators in one comparable form.

A canonical answer is `{"outcome": ..}`, with `results` (one allocation a claim) when allocated. Share ids are random and
become `True`; amounts become exact numbers; absent, null and empty fields are the same.
"""

import re
from fractions import Fraction
from typing import Any

from tests.conformance.objects import Json

_SCALE = {
    "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000), "": Fraction(1),
    "k": Fraction(10**3), "M": Fraction(10**6), "G": Fraction(10**9), "T": Fraction(10**12),
    "P": Fraction(10**15), "E": Fraction(10**18), "Ki": Fraction(2**10), "Mi": Fraction(2**20),
    "Gi": Fraction(2**30), "Ti": Fraction(2**40), "Pi": Fraction(2**50), "Ei": Fraction(2**60),
}  # fmt: skip
_AMOUNT = re.compile(r"([+-]?[0-9.]+)(?:[eE]([+-]?[0-9]+)|([numkMGTPE]?|[KMGTPE]i))")


def amount(text: str) -> str:
    """The exact value of a quantity, as a fraction in lowest terms."""
    matched = _AMOUNT.fullmatch(text)
    if matched is None:
        raise ValueError(f"not a quantity: {text!r}")
    number, exponent, suffix = matched.groups()
    scale = Fraction(10) ** int(exponent) if exponent else _SCALE[suffix or ""]
    return str(Fraction(number) * scale)


def _without_empty(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {key: _without_empty(item) for key, item in value.items()}
        return {key: item for key, item in kept.items() if item not in (None, "", [], {})}
    if isinstance(value, list):
        return [_without_empty(item) for item in value]
    return value


def canonical_allocation(allocation: Json) -> Json:
    """One AllocationResult, comparable."""
    out: Json = _without_empty(allocation)
    for entry in out.get("devices", {}).get("results", ()):
        if "shareID" in entry:
            entry["shareID"] = True
        if "consumedCapacity" in entry:
            entry["consumedCapacity"] = {
                name: amount(text) for name, text in entry["consumedCapacity"].items()
            }
    return out


def canonical(answer: Json) -> Json:
    """An answer of the oracle or of `ours`, comparable: outcome and results."""
    out: Json = {"outcome": answer["outcome"]}
    if answer["outcome"] == "allocated":
        out["results"] = [canonical_allocation(entry) for entry in answer.get("results") or ()]
    return out


# What upstream's message says about whether an error is this node's: True, False; None where the message cannot tell.
_DEPENDS = (
    (re.compile(r"CEL compile error|^compile derived attribute"), False),
    (re.compile(r"unsupported count mode|empty constraint|missing device class|could not retrieve device class"), False),
    (re.compile(r"the feature is disabled|feature is not enabled|feature gate"), False),
    (re.compile(r"CEL runtime error|^evaluate derived attribute"), True),
    (re.compile(r"currently (being updated|invalid)|^gather pool information|unsupported ResourceSlice.NodeSelector"), True),
    (re.compile(r"claim constraint would not be satisfied|checking capacity for device"), True),
)  # fmt: skip


def depends_on_node(message: str) -> bool | None:
    """Whether upstream's fatal error comes from the node or its devices, as far as its text says."""
    for pattern, answer in _DEPENDS:
        if pattern.search(message):
            return answer
    return None


def difference(upstream: Json, mine: Json) -> str | None:
    """What differs between two answers, or None."""
    want, got = canonical(upstream), canonical(mine)
    if want["outcome"] != got["outcome"]:
        return (
            f"outcome: upstream {want['outcome']} ({upstream.get('message', '')}), "
            f"ours {got['outcome']} ({mine.get('message', '')})"
        )
    if want != got:
        return f"results: upstream {want['results']}, ours {got['results']}"
    if want["outcome"] == "fatal":
        expected = depends_on_node(upstream.get("message", ""))
        if expected is not None and mine.get("dependsOnNode") is not expected:
            return (
                f"dependsOnNode: {expected} by upstream's text {upstream.get('message')!r}, "
                f"ours {mine.get('dependsOnNode')} ({mine.get('message')})"
            )
    return None
