"""What kinds have in common when they are created and updated; kinds with rules of their own build on it."""

from collections.abc import Iterable, Mapping
from typing import Protocol

from scheduler.lab.apiserver.errors import Cause
from scheduler.lab.apiserver.objects import Json, replace, same, spec

# Members of metadata that a write to `status` may change, for kinds that let it.
STATUS_METADATA = ("labels", "annotations", "finalizers")


class Lookup(Protocol):
    """What the rules of one kind may ask about others."""

    def namespace_labels(self, name: str) -> Mapping[str, str]:
        """Labels of a namespace; empty if it does not exist."""
        ...

    def priority_class(self, name: str) -> Json | None:
        """A PriorityClass by name."""
        ...

    def default_priority_class(self) -> Json | None:
        """The PriorityClass for pods that name none."""
        ...


class Strategy:
    """A kind without rules of its own. Methods that prepare change their first argument in place."""

    has_status = False
    simple_names = True

    def default(self, obj: Json) -> None:
        """Fill in defaults; called for every object a client sends."""

    def prepare_for_create(self, obj: Json, lookup: Lookup) -> None:
        """Fill in and clear what a client may not set.

        Raises:
            StatusError: admission refuses.
        """
        if self.has_status:
            obj.pop("status", None)

    def prepare_for_update(self, new: Json, old: Json) -> None:
        """Undo changes that are not for this path: to the status."""
        if self.has_status:
            replace(new, "status", old)

    def prepare_for_status_update(self, new: Json, old: Json) -> None:
        """Undo changes that are not for this path: to the spec."""
        replace(new, "spec", old)

    def validate(self, obj: Json, lookup: Lookup) -> Iterable[Cause]:
        """What is wrong with a new object."""
        return ()

    def validate_update(self, new: Json, old: Json, lookup: Lookup) -> Iterable[Cause]:
        """What is wrong with a change."""
        return ()

    def validate_status_update(self, new: Json, old: Json, lookup: Lookup) -> Iterable[Cause]:
        """What is wrong with a change of the status."""
        return ()

    def spec_changed(self, new: Json, old: Json) -> bool:
        """Whether the generation must grow."""
        return not same(spec(new), spec(old))


class StatusStrategy(Strategy):
    """A kind with a status subresource and nothing else."""

    has_status = True


def keep_metadata(new: Json, old: Json) -> None:
    """Undo every change of metadata except to what identifies the version that is written against, in place."""
    sent = new["metadata"]
    kept = {
        key: value
        for key, value in old["metadata"].items()
        if key not in ("resourceVersion", "uid")
    }
    for key in ("resourceVersion", "uid"):
        if key in sent:
            kept[key] = sent[key]
    new["metadata"] = kept
