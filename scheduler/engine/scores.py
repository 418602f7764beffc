"""Scores of nodes that fit; how well devices serve the pod is asked once for all nodes with an equal view."""

from typing import Final

from scheduler.engine.answers import Answer
from scheduler.engine.attempt import Attempt
from scheduler.framework.profile import Scores
from scheduler.plugins import dynamic_resources

# Strategies whose score is a function of the view.
_OF_THE_VIEW: Final = frozenset({"MostAllocated", "LeastAllocated", "None"})


def scores_of(attempt: Attempt, answer: Answer) -> Scores:
    """The raw scores of a node that fits; asked once, then kept in its answer."""
    scores = answer.scores
    if scores is None:
        scores = answer.scores = _scores(attempt, answer)
    return scores


def _scores(attempt: Attempt, answer: Answer) -> Scores:
    node, found, profile = answer.info, answer.found, attempt.profile
    if node is None:
        raise AssertionError("a node that is not known has no scores")
    if answer.verdict is not None:
        devices = dynamic_resources.score_node(attempt, node, answer.verdict.allocations)
        return profile.scores(attempt.info, node, devices)
    if found is None:
        return profile.scores(attempt.info, node, 0)
    if found.scores is not None:
        return found.scores
    score = found.score
    is_shared = attempt.environment.device_strategy in _OF_THE_VIEW
    if score is None:
        score = dynamic_resources.score_node(attempt, node, attempt.verdict(answer).allocations)
        if is_shared:
            found.score = score
    scores = profile.scores(attempt.info, node, score)
    if is_shared and profile.scores_devices_alone:
        found.scores = scores
    return scores
