"""cel-python beside our CEL, on what both know; where they differ, upstream says who is right.

`python -m tests.conformance.cel_second_opinion` writes the list of known differences anew. One that has none of the known causes
gets the reason `?`, which a test refuses: somebody has to look at it.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from allocator.cel import Compiler, Program
from allocator.cel.syntax.tree import Call, Comprehension, ListNode, MapNode, Node, Select, Struct
from allocator.errors import CelCompileError
from tests.conformance import record_cel
from tests.conformance.objects import Json
from tests.conformance.ours_cel import ours, values
from tests.conformance.upstream import Oracle, Process

KNOWN: Final = Path(__file__).parent / "cel" / "second-opinion.jsonl"
_CORPUS: Final = KNOWN.parent / "cel-corpus.jsonl"
_OPERATORS: Final = frozenset(
    {"_+_", "_-_", "_*_", "_/_", "_%_", "_<_", "_<=_", "_>_", "_>=_", "_==_", "_!=_", "_&&_", "_||_", "!_", "-_", "_?_:_",
     "_[_]", "@in", "@not_strictly_false"}
)  # fmt: skip
_FUNCTIONS: Final = frozenset(
    {"size", "contains", "startsWith", "endsWith", "matches", "int", "uint", "double", "string", "bytes", "bool", "type", "dyn",
     "duration", "timestamp", "getDate", "getDayOfMonth", "getDayOfWeek", "getDayOfYear", "getFullYear", "getHours",
     "getMilliseconds", "getMinutes", "getMonth", "getSeconds"}
)  # fmt: skip
_MACROS: Final = frozenset({"all", "exists", "exists_one", "map", "filter"})
_EXPENSIVE: Final = frozenset({"cost", "depth"})


_NUMBER: Final = r"<class 'celpy\.celtypes\.(?:Int|Uint|Double)Type'>"
_NUMBERS: Final = "an int, uint and double are not compared with each other"
# What cel-python's error says, or else what the expression looks like -> why it differs.
_CAUSES: Final = (
    (rf"'relation_\w+'\) applied to '\({_NUMBER}, {_NUMBER}\)", _NUMBERS),
    (rf"no such overload: \w+\(\S+\) {_NUMBER} != \w+\(\S+\) {_NUMBER}", _NUMBERS),
    (r"matching overload.*'relation_|no such overload: \w+\(.*\) <class|CELEvalErr.*matching overload",
     "values of different types are not unequal: no overload"),
    (r"^CELSyntaxError: member_dot_arg", "a variable with a dot in front is none"),
    (r"^CELParseError", "no syntax for trailing commas and back-quoted names"),
    (r"^ValueError: too many values to unpack", "map() has no filter"),
    (r"No 'NullValue' in bindings", "NullValue is no name"),
    (r"int\(\) argument must be|Cannot create .*TimestampType", "no int() of a duration, and no timestamp() of an int"),
    (r"'str' object has no attribute|^type\(\(.* == string|\(type\(\(.*\+", "the sum of texts is a Python text, of no CEL type and without methods"),
    (r"'datetime.timedelta' object", "the difference of durations is a Python one, without methods"),
    (r"\\`", "an escaped back quote keeps its backslash"),
    (r"\bflag\b.* == 1|\bok\b.* [<>]", "a bool is a number, as in Python"),
    (r"^string\((?:1\.0|true)\)", "string() of a number or bool is Python's text"),
    (r"\[-1\]", "a negative index counts from the end"),
    (r"name\[0\]|scalar\.exists|uni\.(?:all|exists)|text\.(?:all|exists)", "a text is a list of characters: it is indexed, iterated and searched"),
    (r'^"fish" in', "in on a text searches a part of it"),
    (r"^has\(", "has() is whether anything failed, so that an error inside is hidden"),
    (r"0\.0 / 0\.0", "NaN has an order: less than is false"),
    (r"\{.*: .*\[?.*\}", "a map literal hides the error of a member"),
)  # fmt: skip


class Difference(NamedTuple):
    """An expression on which cel-python differs from upstream.

    Attributes:
        upstream: `true`, `false` or `error`: cel-python has no type checker, so that both sorts of error are one.
        reason: why, in words.
    """

    id: str
    expr: str
    upstream: str
    cel_python: str
    reason: str


def known() -> dict[str, Difference]:
    """The committed list, by id."""
    lines = map(json.loads, KNOWN.read_text().splitlines())
    return {line["id"]: Difference(**line) for line in lines}


def questions() -> Iterator[Json]:
    """The corpus and the recorded random expressions, as far as they are in the subset."""
    compiler = Compiler()
    corpus = map(json.loads, _CORPUS.read_text().splitlines())
    for question in (*corpus, *record_cel.questions("random")):
        if question.get("kind") in _EXPENSIVE or question.get("derived"):
            continue
        try:
            program = compiler.selector(question["expr"])
        except CelCompileError:
            continue
        if is_common(program) and _is_held(program, question):
            yield question


def is_common(program: Program) -> bool:
    """Whether cel-python knows everything in an expression: standard functions and macros, no syntax of its own."""
    pending = [program.ast.root]
    seen: set[int] = set()
    while pending:
        node = pending.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if not _is_known(node):
            return False
        pending.extend(node.children())
    return True


def _is_known(node: Node) -> bool:
    if isinstance(node, Call):
        return node.function in _OPERATORS or node.function in _FUNCTIONS
    if isinstance(node, Comprehension):
        return node.macro in _MACROS and not node.iter_var2
    if isinstance(node, ListNode):
        return not node.optionals
    if isinstance(node, MapNode):
        return not any(is_optional for _, _, is_optional in node.entries)
    return not isinstance(node, Struct) and not (
        isinstance(node, Select) and node.field == "capacity"
    )


def _is_held(program: Program, question: Json) -> bool:
    """Whether cel-python can hold what the expression reads: no versions, and no device with a broken attribute."""
    if program.reads is None or values(question).error is not None:
        return False
    names = {read.name for read in program.reads if read.kind == "attribute"}
    attributes: Json = question["device"].get("attributes") or {}
    return not any(
        name.rpartition("/")[2] in names and not {"version", "versions"}.isdisjoint(attribute)
        for name, attribute in attributes.items()
    )


def _merged(result: str) -> str:
    return "error" if result.endswith("_error") else result


def _cause(expression: str, answer: Json) -> str:
    told = answer.get("message") or expression
    return next((reason for pattern, reason in _CAUSES if re.search(pattern, told)), "?")


class _Found(NamedTuple):
    asked: int
    differences: dict[str, Difference]
    ours_wrong: int


def _compare(oracle: Oracle) -> _Found:
    compiler = Compiler()
    reasons = known()
    asked = wrong = 0
    differences: dict[str, Difference] = {}
    command = [sys.executable, "-m", "tests.conformance.cel_python_worker"]
    with Process(command) as second:
        for question in questions():
            id_, text = question["id"], question["expr"]
            second.send(question)
            upstream = _merged(oracle.ask(question)["result"])
            mine = _merged(ours(question, compiler)["result"])
            answer = second.receive()
            other = answer["result"]
            asked += 1
            wrong += mine != upstream
            if other != upstream:
                before = reasons.get(id_)
                reason = (
                    _cause(text, answer) if before is None or before.expr != text else before.reason
                )
                differences[id_] = Difference(id_, text, upstream, other, reason)
                if mine != upstream:
                    print(
                        f"{id_}: neither is right: {text}\n  upstream {upstream}, ours {mine}, cel-python {other}"
                    )
            elif mine != upstream:
                print(f"{id_}: cel-python is right: {text}\n  upstream {upstream}, ours {mine}")
    return _Found(asked, differences, wrong)


def is_installed() -> bool:
    """Whether there is a second opinion to be had."""
    done = subprocess.run([sys.executable, "-c", "import celpy"], check=False, capture_output=True)
    return done.returncode == 0


def check(oracle: Oracle) -> int:
    """Compare with the list; returns how many differences are new, gone or other ones, or ours.

    A development environment without cel-python is one that the lock file has not made.
    """
    if not is_installed():
        print("cel-python is not installed: pip install -r requirements-dev.lock")
        return 1
    listed = known()
    found = _compare(oracle)
    wrong = found.ours_wrong
    for id_ in sorted(listed.keys() | found.differences.keys()):
        before, now = listed.get(id_), found.differences.get(id_)
        if before == now:
            continue
        wrong += 1
        if now is None:
            print(f"{id_}: cel-python is right by now, take it off the list: {before}")
        else:
            print(f"{id_}: cel-python differs, upstream is right: {now.expr}\n  upstream {now.upstream}, "
                  f"cel-python {now.cel_python}, {'not listed' if before is None else 'listed otherwise'}")  # fmt: skip
    print(f"cel-python beside ours: {found.asked} expressions, ours is right in {found.asked - found.ours_wrong}, "
          f"cel-python in {found.asked - len(found.differences)}, unexpected: {wrong}")  # fmt: skip
    return wrong


def main() -> None:
    """Write the list."""
    with Oracle("cel") as oracle:
        found = _compare(oracle).differences
    lines = (json.dumps(each._asdict(), ensure_ascii=False) for each in found.values())
    KNOWN.write_text("".join(line + "\n" for line in lines))
    unexplained = sum(each.reason == "?" for each in found.values())
    print(f"{len(found)} differences, {unexplained} of them without a reason")


if __name__ == "__main__":
    main()
