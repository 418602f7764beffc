"""The extender's wire format: exact names, strict limits, no echo of the input."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.api import extender_v1
from scheduler.api.extender_v1 import RequestError, parse_bind, parse_filter, parse_preempt

POD: dict[str, Any] = {
    "metadata": {"name": "p", "namespace": "n", "uid": "u", "creationTimestamp": None},
    "spec": {"containers": None},
}


def body(**fields) -> bytes:
    return json.dumps({"Pod": POD, "Nodes": None, "NodeNames": ["n1", "n2"], **fields}).encode()


def test_filter_takes_pod_and_names():
    args = parse_filter(body())
    assert (args.pod.key, args.node_names) == ("n/p", ["n1", "n2"])


def test_no_names_at_all_is_an_empty_list():
    assert parse_filter(body(NodeNames=None)).node_names == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"", "the body is not JSON"),
        (b"[]", "expected an object, got a list"),
        (b'{"NodeNames":["a"]}', "Pod: is required"),
        (body(NodeNames="n1"), "NodeNames: expected a list, got text"),
        (body(NodeNames=["a", 3]), "NodeNames[1]: expected text, got a whole number"),
        (body(NodeNames=["a", "a"]), "NodeNames: a node is named twice"),
        (body(NodeNames=[""]), "NodeNames: a node name is empty"),
        (body(NodeNames=["x" * 254]), "NodeNames: a node name is empty or longer than 253"),
        (body(NodeNames=[f"n{i}" for i in range(10_001)]), "NodeNames: more than 10000 nodes"),
        (
            body(NodeNames=None, Nodes={"items": []}),
            "Nodes: node objects are not accepted: set nodeCacheCapable",
        ),
        (
            body(Pod={"spec": {"priority": 1.5}}),
            "Pod.spec.priority: expected a whole number, got a number with a fraction",
        ),
        (body(Pod={"spec": {"overhead": {"TOP SECRET": "SECRET"}}}), "is not a quantity"),
        (body(Pod={"x": "SECRET"}).replace(b'"SECRET"', b"NaN"), "not JSON"),
        (body(Pod=None).replace(b"null", b"[" * 65 + b"]" * 65, 1), "nested deeper than 64"),
        (b"[" + b"{}," * 200_001 + b"{}]", "more than 200000 JSON values"),
        (b" " * (4 * 1024 * 1024 + 1), "larger than"),
    ],
)
def test_bad_requests_are_refused_without_repeating_them(text, problem):
    with pytest.raises(RequestError) as caught:
        parse_filter(text)
    assert problem in str(caught.value)
    assert "SECRET" not in str(caught.value)


def test_sixty_four_levels_are_accepted_and_one_more_is_not():
    def nested(levels: int) -> bytes:
        return body(Pod={**POD, "unknown": "X"}).replace(b'"X"', b"[" * levels + b"]" * levels)

    assert parse_filter(nested(62)).pod.key == "n/p"
    with pytest.raises(RequestError, match="nested deeper"):
        parse_filter(nested(63))


def test_brackets_and_commas_in_text_do_not_count():
    text = '[{,\\"' * 40_000
    assert (
        parse_filter(
            body(Pod={**POD, "metadata": {**POD["metadata"], "annotations": {"a": text}}})
        ).pod.key
        == "n/p"
    )


def test_preempt_takes_the_short_form_and_returns_it_unchanged():
    victims = {"n1": {"Pods": [{"UID": "a"}], "NumPDBViolations": 1}}
    args = parse_preempt(
        json.dumps(
            {"Pod": POD, "NodeNameToVictims": None, "NodeNameToMetaVictims": victims}
        ).encode()
    )
    assert args.victims == victims
    assert json.loads(extender_v1.preempt_result(args.victims)) == {
        "NodeNameToMetaVictims": victims
    }


def test_preempt_refuses_whole_pods():
    with pytest.raises(RequestError, match="NodeNameToVictims"):
        parse_preempt(json.dumps({"Pod": POD, "NodeNameToVictims": {"n1": {}}}).encode())


def test_bind_needs_all_four_names():
    complete = {"PodName": "p", "PodNamespace": "n", "PodUID": "u", "Node": "n1"}
    assert parse_bind(json.dumps(complete).encode()).pod_uid == "u"
    for field in complete:
        with pytest.raises(RequestError, match=f"{field}: is required"):
            parse_bind(json.dumps({**complete, field: ""}).encode())


def test_bind_bodies_are_small():
    with pytest.raises(RequestError) as caught:
        parse_bind(b'{"PodName":"' + b"x" * 65_536 + b'"}')
    assert caught.value.too_large


@given(st.binary(max_size=200))
def test_any_bytes_are_a_request_or_an_error(text):
    for parse in (parse_filter, parse_preempt, parse_bind):
        with contextlib.suppress(RequestError):
            parse(text)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "Pod",
                    "metadata",
                    "spec",
                    "NodeNames",
                    "Nodes",
                    "NodeNameToMetaVictims",
                    "Pods",
                    "containers",
                    "name",
                ]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=20,
)


@given(JSON)
def test_any_json_is_a_request_or_an_error(value):
    text = json.dumps(value).encode()
    for parse in (parse_filter, parse_preempt, parse_bind):
        with contextlib.suppress(RequestError):
            parse(text)


def test_answers_have_the_names_kube_scheduler_reads():
    assert json.loads(extender_v1.filter_result(["a"], {"b": "x"}, {"c": "y"})) == {
        "NodeNames": ["a"],
        "FailedNodes": {"b": "x"},
        "FailedAndUnresolvableNodes": {"c": "y"},
        "Error": "",
    }
    assert json.loads(extender_v1.filter_error("no")) == {
        "NodeNames": None,
        "FailedNodes": {},
        "FailedAndUnresolvableNodes": {},
        "Error": "no",
    }
    assert json.loads(extender_v1.prioritize_result({10: ["a"]})) == [{"Host": "a", "Score": 10}]
    assert json.loads(extender_v1.bind_result()) == {"Error": ""}


@given(st.dictionaries(st.text(), st.integers(0, extender_v1.MAX_PRIORITY)))
def test_every_node_is_answered_with_its_score_whatever_its_name(scores):
    by_score: dict[int, list[str]] = {}
    for name, score in scores.items():
        by_score.setdefault(score, []).append(name)
    answered = json.loads(extender_v1.prioritize_result(by_score))
    assert all(set(entry) == {"Host", "Score"} for entry in answered)
    assert sorted((entry["Host"], entry["Score"]) for entry in answered) == sorted(scores.items())


def test_scores_outside_the_contract_are_a_bug():
    with pytest.raises(AssertionError):
        extender_v1.prioritize_result({11: ["a"]})
