"""A page of a list looked at for nothing but who is in it, in which version."""

from typing import Final, NamedTuple

import msgspec

from scheduler.api.rawjson import RawJsonError, members_and_elements, string_at


class Listed(NamedTuple):
    """Who is in a page.

    Attributes:
        versions: UID -> resourceVersion; who has no UID is left out.
        resource_version: of the list.
        continue_token: for the next page; empty on the last one.
    """

    versions: dict[str, str]
    resource_version: str
    continue_token: str


class _Meta(msgspec.Struct, frozen=True, rename="camel", gc=False):
    uid: str = ""
    resource_version: str = ""


class _Item(msgspec.Struct, frozen=True, gc=False):
    metadata: _Meta = _Meta()


class _ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _Page(msgspec.Struct, frozen=True):
    metadata: _ListMeta = _ListMeta()
    items: list[_Item] | None = None


_PAGE: Final = msgspec.json.Decoder(_Page)


def listed(body: bytes) -> Listed:
    """Look at a page of a list of any kind, whole objects or their metadata alone.

    Raises:
        ValueError: the body is no list.
    """
    try:
        page = _PAGE.decode(body)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return _listed_slowly(body)
    versions = {item.metadata.uid: item.metadata.resource_version for item in page.items or ()}
    versions.pop("", None)
    return Listed(versions, page.metadata.resource_version, page.metadata.continue_)


def _listed_slowly(body: bytes) -> Listed:
    versions: dict[str, str] = {}
    version = token = ""
    try:
        for key, span in members_and_elements(body, "items"):
            value = body[span.start : span.end]
            if key == "items":
                version_of_item = string_at(value, "metadata", "resourceVersion")
                versions[string_at(value, "metadata", "uid")] = version_of_item
            elif key == "metadata":
                version = string_at(value, "resourceVersion")
                token = string_at(value, "continue")
    except RawJsonError as error:
        raise ValueError(f"it is no list: {error}") from None
    versions.pop("", None)
    return Listed(versions, version, token)
