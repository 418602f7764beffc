"""Every reference leads somewhere: links between pages, and citations of pages in code, manifests and messages."""

import re

import pytest

from tests.docs.repository import (
    ROOT,
    anchors,
    links,
    markdown_files,
    problem_with,
    references,
    text_files,
    text_of,
)

# Pages that are not in the repository and must not be cited.
_UNKNOWN = re.compile(
    r"\breliability(\.md)? (\d|[SLFRHDW]\d)|\breliability page|scheduler-and-claims|\bdra-allocator(\.md)? (section )?\d"
    r"|dra-allocator\.md|architecture\.md|(?<![\w/-])(cel|style)\.md\b|(?<!/)preemption-and-gangs"
)
_PATH = re.compile(r"`((?:allocator|scheduler|tests|e2e|deploy|docs|examples)/[\w./-]*)`")
_ID = r"(?:S1b|[SLFRH]\d{1,2}|W[0-4])"
_IDS = re.compile(_ID)
# A list in parentheses, or one of several at the start of a line.
_CITED = re.compile(
    rf"(?:\(({_ID}(?:(?:, |-|; ){_ID})*)[,);])|(?:^ *({_ID}(?:(?:, |-|; ){_ID})+)[,;.]?)",
    re.MULTILINE,
)
_PAGES_OF_IDS = (
    "docs/design/invariants.md",
    "docs/design/failure-model.md",
    "docs/design/cache-and-watches.md",
    "docs/design/leader-election.md",
    "docs/design/write-protocol.md",
)


@pytest.mark.parametrize("path", markdown_files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_links_of_a_page_resolve(path):
    problems = []
    for target in links(path):
        if target.startswith("#"):
            if target[1:] not in anchors(path):
                problems.append(f"{target}: no such anchor")
        else:
            problems.append(problem_with(target, path.parent))
    assert [problem for problem in problems if problem] == []


def test_pages_that_are_cited_exist():
    problems = [
        f"{path.relative_to(ROOT)}: {problem}"
        for path in text_files()
        for target in references(path)
        if (problem := problem_with(target, ROOT))
    ]
    assert problems == []


def test_nothing_cites_a_page_that_is_not_in_the_repository():
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in text_files()
        if path.parent != ROOT / "tests" / "docs"
        for number, line in enumerate(text_of(path).splitlines(), 1)
        if _UNKNOWN.search(re.sub(r"docs/[\w./-]*|design/[\w./-]*", "", line))
        and not path.is_relative_to(ROOT / "docs")
    ]
    assert found == []


def test_paths_that_pages_name_exist():
    problems = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in markdown_files()
        if path.name != "CHANGELOG.md"
        for name in _PATH.findall(text_of(path))
        if not (ROOT / name.rstrip("/")).exists()
    ]
    assert problems == []


def test_numbered_rules_that_code_names_are_on_a_page():
    known = {anchor.upper() for page in _PAGES_OF_IDS for anchor in anchors(ROOT / page)}
    problems = [
        f"{path.relative_to(ROOT)}: {rule}"
        for path in text_files()
        if path.suffix == ".py"
        for cited in _CITED.finditer(text_of(path))
        for rule in _IDS.findall(cited[1] or cited[2])
        if rule.upper() not in known
    ]
    assert problems == []


def test_a_rule_has_its_anchor_once():
    seen: dict[str, str] = {}
    for page in _PAGES_OF_IDS:
        ids = re.findall(r'<a id="([a-z]\d+b?)"></a>', text_of(ROOT / page))
        for rule in ids:
            assert rule not in seen, f"{rule} is on {seen[rule]} and {page}"
            seen[rule] = page
    assert len(seen) > 90


def test_every_page_of_the_site_is_in_its_navigation():
    navigation = text_of(ROOT / "mkdocs.yml")
    pages = [str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")]
    assert [page for page in pages if page not in navigation] == []
