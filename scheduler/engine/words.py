"""Refusals in words that every pod may use: claims without names, and the names put in later.

The claims of a question carry placeholders for names, which cannot be in any real text, so that a refusal can be handed to
each pod in its own words.
"""

from collections.abc import Sequence

from allocator.model.claims import ResourceClaim
from allocator.model.meta import ObjectMeta
from allocator.outcome import Reason
from scheduler.framework.status import Status


def anonymous(claims: Sequence[ResourceClaim]) -> tuple[ResourceClaim, ...]:
    """Claims with placeholders for names."""
    return tuple(
        ResourceClaim(
            metadata=ObjectMeta(namespace="\x01", name=_placeholder(index)), spec=claim.spec
        )
        for index, claim in enumerate(claims)
    )


def _placeholder(index: int) -> str:
    return f"\x02{index}\x02"


Words = dict[tuple[object, ...], Status]


def named(status: Status, claims: Sequence[ResourceClaim], words: Words) -> Status:
    """A status about anonymous claims, in the words of a pod's own claims; `words` keeps what was said before."""
    reason = status.reason
    if reason is None or "\x02" not in reason.message + reason.claim:
        return status
    key = (reason.message, reason.claim, reason.request, reason.kind, status.plugin, status.code)
    known = None if reason.devices else words.get(key)  # devices are of one node
    if known is not None:
        return known
    message, claim = reason.message, reason.claim
    for index, real in enumerate(claims):
        message = message.replace(f"\x01/{_placeholder(index)}", real.key)
        message = message.replace(_placeholder(index), real.metadata.name)
        if claim == _placeholder(index):
            claim = real.metadata.name
    named_reason = Reason(
        kind=reason.kind,
        message=message,
        claim=claim,
        request=reason.request,
        devices=reason.devices,
    )
    made = Status(status.code, named_reason, status.plugin)
    if not reason.devices:
        words[key] = made
    return made
