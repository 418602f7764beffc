"""Manifests: files, folders and standard input, as YAML or JSON, with many documents and lists. The only YAML reader.

YAML is read as `kubectl` reads it (YAML 1.1 without timestamps and base-60 numbers, Go's floats); numbers with a
fraction keep their text. A document that repeats an anchor until it is huge is refused.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TextIO

import msgspec
import yaml

from scheduler.api.numbers import ExactNumber, decode_tree, encode_tree
from scheduler.api.walk import json_type

STDIN: Final = "-"
_SUFFIXES: Final = frozenset({".yaml", ".yml", ".json"})
_MAX_VALUES: Final = 5_000_000
_INT: Final = re.compile(
    r"""^(?:[-+]?0b[01_]+|[-+]?0x[0-9a-fA-F_]+|[-+]?0o?[0-7_]+|[-+]?(?:0|[1-9][0-9_]*))$"""
)
_FLOAT: Final = re.compile(r"""^[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$""")

Json = dict[str, Any]


class ManifestError(ValueError):
    """Input that cannot be read at all.

    Attributes:
        file: as it was named.
        document: number of the document in the file, from 1; 0: the file as a whole.
        problem: what is wrong, in words.
    """

    def __init__(self, file: str, document: int, problem: str) -> None:
        super().__init__(file, document, problem)
        self.file = file
        self.document = document
        self.problem = problem

    def __str__(self) -> str:
        where = f"{self.file}, document {self.document}" if self.document else self.file
        return f"{where}: {self.problem}"


@dataclass(frozen=True, slots=True, eq=False)
class Manifest:
    """One object of the input.

    Attributes:
        file: where it came from.
        document: number of its document in the file, from 1.
        obj: plain data, `kind` and `apiVersion` filled in for items of a typed list.
    """

    file: str
    document: int
    obj: Json


def load_manifests(paths: Sequence[str], stdin: TextIO) -> list[Manifest]:
    """Read all objects of files, folders (with their subfolders, in name order) and `-`, in order.

    Raises:
        ManifestError: a path cannot be read, or a document is no object.
    """
    manifests: list[Manifest] = []
    for path in paths:
        if path == STDIN:
            manifests.extend(parse_manifests("stdin", stdin.read()))
            continue
        for file in _files(path):
            manifests.extend(parse_manifests(file, _read(file)))
    return manifests


def _files(path: str) -> list[str]:
    place = Path(path)
    if not place.is_dir():
        return [path]
    files = sorted(
        str(file)
        for file in place.rglob("*")
        if file.suffix.lower() in _SUFFIXES
        and file.is_file()
        and not any(part.startswith(".") for part in file.relative_to(place).parts)
    )
    if not files:
        raise ManifestError(path, 0, "the folder holds no .yaml, .yml or .json file")
    return files


def _read(file: str) -> str:
    try:
        return Path(file).read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ManifestError(file, 0, f"it is not UTF-8 text (byte {error.start})") from None
    except OSError as error:
        raise ManifestError(file, 0, error.strerror or str(error)) from None


def parse_manifests(file: str, text: str) -> list[Manifest]:
    """Read all objects of one text; a list stands for its items, an empty document for nothing.

    Raises:
        ManifestError: the text does not parse, or a document is no object.
    """
    manifests: list[Manifest] = []
    for number, value in _documents(file, text):
        if value is None:
            continue
        if not isinstance(value, dict):
            raise ManifestError(file, number, f"expected an object, got {json_type(value)}")
        manifests.extend(Manifest(file, number, obj) for obj in _items(file, number, value))
    return manifests


def _items(file: str, number: int, obj: Json) -> list[Json]:
    """The object itself, or what a list holds. Items of typed lists leave out what the list says for all."""
    kind = obj.get("kind")
    if (
        not isinstance(kind, str)
        or not kind.endswith("List")
        or not isinstance(obj.get("items"), list | None)
    ):
        return [obj]
    if "items" not in obj:
        return [obj]
    inherited = {} if kind == "List" else {"apiVersion": obj.get("apiVersion"), "kind": kind[:-4]}
    items: list[Json] = []
    for index, item in enumerate(obj["items"] or ()):
        if not isinstance(item, dict):
            raise ManifestError(
                file, number, f"items[{index}]: expected an object, got {json_type(item)}"
            )
        items.extend(_items(file, number, {**inherited, **item}))
    return items


def _documents(file: str, text: str) -> Iterator[tuple[int, Any]]:
    start = text.lstrip()[:1]
    if file.endswith(".json") or start in ("{", "["):
        try:
            return iter(_json_documents(text))
        except ValueError as error:
            if file.endswith(".json"):
                raise ManifestError(file, 0, f"it is not JSON: {error}") from None
        except RecursionError:
            raise ManifestError(file, 0, "it is nested too deeply") from None
    return _yaml_documents(file, text)


def _json_documents(text: str) -> list[tuple[int, Any]]:
    """One JSON value, or several one after another.

    Raises:
        ValueError: it is no JSON.
    """
    try:
        return [(1, decode_tree(text.encode()))]
    except msgspec.DecodeError as error:
        if "trailing characters" not in str(error):
            raise
    decoder = json.JSONDecoder(parse_float=ExactNumber, parse_constant=_no_constant)
    documents: list[tuple[int, Any]] = []
    position = 0
    while position < len(text):
        if text[position].isspace():
            position += 1
            continue
        value, position = decoder.raw_decode(text, position)
        documents.append((len(documents) + 1, value))
    return documents


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


class _Loader(yaml.CSafeLoader):
    """A safe loader that reads plain scalars as kubectl does."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 (PyYAML's own interface)


def _set_up_resolvers() -> None:
    dropped = {"tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:int", "tag:yaml.org,2002:float"}
    _Loader.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag not in dropped]
        for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
    }
    _Loader.add_implicit_resolver("tag:yaml.org,2002:int", _INT, list("-+0123456789"))
    _Loader.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+.0123456789"))
    _Loader.add_constructor("tag:yaml.org,2002:float", _construct_float)


def _construct_float(loader: yaml.CSafeLoader, node: yaml.ScalarNode) -> ExactNumber:
    return ExactNumber(str(loader.construct_scalar(node)))


_set_up_resolvers()


def _yaml_documents(file: str, text: str) -> Iterator[tuple[int, Any]]:
    number = 0
    loader = None
    try:
        loader = _Loader(text)
        while loader.check_data():  # type: ignore[no-untyped-call]
            number += 1
            value = loader.get_data()
            yield number, _plain(value)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        problem = error.problem or error.context or "it does not parse"
        raise ManifestError(file, max(number, 1), f"{where}{problem}") from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        text_of_error = " ".join(str(error).split())
        raise ManifestError(file, max(number, 1), f"it is not YAML: {text_of_error}") from None
    except RecursionError:
        raise ManifestError(file, max(number, 1), "it is nested too deeply") from None
    finally:
        if loader is not None:
            loader.dispose()


def _plain(value: Any) -> Any:
    """Check the size of a document with its repetitions written out, and make all keys text, as JSON needs them."""
    sizes: dict[int, int] = {}
    if _size(value, sizes, set()) > _MAX_VALUES:
        raise ValueError(f"it has more than {_MAX_VALUES} values once its anchors are written out")
    return _with_text_keys(value)


def _size(value: Any, sizes: dict[int, int], open_: set[int]) -> int:
    if not isinstance(value, dict | list):
        return 1
    identity = id(value)
    if identity in sizes:
        return sizes[identity]
    if identity in open_:
        raise ValueError("an anchor contains itself")
    open_.add(identity)
    parts = value.values() if isinstance(value, dict) else value
    size = 1 + sum(_size(part, sizes, open_) for part in parts)
    open_.discard(identity)
    sizes[identity] = size
    return size


def _with_text_keys(value: Any) -> Any:
    if isinstance(value, list):
        return [_with_text_keys(item) for item in value]
    if isinstance(value, dict):
        return {_key(key): _with_text_keys(item) for key, item in value.items()}
    return value


def _key(key: Any) -> str:
    match key:
        case str():
            return key
        case bool():
            return "true" if key else "false"
        case ExactNumber():
            return key.text
        case int():
            return str(key)
        case _:
            raise ValueError(f"a key is {json_type(key)}")


class _Dumper(yaml.CSafeDumper):
    """A dumper that writes exact numbers as they were read."""

    def ignore_aliases(self, _data: Any) -> bool:
        """Write repeated values out: nobody reads anchors in a report."""
        return True


def _represent_exact(dumper: yaml.CSafeDumper, number: ExactNumber) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:float", number.text)


_Dumper.add_representer(ExactNumber, _represent_exact)


def dump_yaml(value: Any) -> str:
    """Write plain data as YAML, keys in their order."""
    return str(yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120))


def dump_json(value: Any) -> str:
    """Write plain data as indented JSON, keys in their order."""
    return msgspec.json.format(encode_tree(value), indent=2).decode() + "\n"
