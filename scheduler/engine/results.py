"""What is handed out about many nodes: verdicts in the words of a pod, each made when it is looked at."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from scheduler.conclusion import Refusals
from scheduler.engine.answers import UNKNOWN, Answer
from scheduler.engine.attempt import Attempt
from scheduler.engine.questions import NoNodeFits
from scheduler.framework.cycle_state import FilterResult, NodeVerdict


class LazyVerdicts(Mapping[str, NodeVerdict]):
    """Verdicts on some nodes, in order, each made when it is looked at."""

    def __init__(
        self, attempt: Attempt, names: Sequence[str], answers: Mapping[str, Answer]
    ) -> None:
        """Keep what verdicts are made from.

        Args:
            attempt: whose words are used.
            names: of the nodes.
            answers: node name -> what it answered; nodes without one are not known.
        """
        self._attempt = attempt
        self._names = names
        self._answers = answers
        self._set: frozenset[str] | None = None
        self._made: dict[str, NodeVerdict] = {}

    def only(self, names: Sequence[str]) -> "LazyVerdicts":
        """The same verdicts on fewer nodes."""
        fewer = LazyVerdicts(self._attempt, names, self._answers)
        fewer._made = self._made  # what was made for one is there for both
        return fewer

    def messages(self) -> dict[str, str]:
        """What each node says, without making its verdict: most nodes say the same."""
        said: dict[str, str] = {}
        messages: dict[str, str] = {}
        for name in self._names:
            status = self._answers.get(name, UNKNOWN).status
            text = status.message
            message = said.get(text)
            if message is None:
                message = said[text] = self._attempt.named(status).message
            messages[name] = message
        return messages

    def __getitem__(self, name: str) -> NodeVerdict:
        made = self._made.get(name)
        if made is None:
            if name not in self:
                raise KeyError(name)
            answer = self._answers.get(name, UNKNOWN)
            made = self._made[name] = self._attempt.verdict(answer)
        return made

    def __contains__(self, name: object) -> bool:
        if self._set is None:
            self._set = frozenset(self._names)
        return name in self._set

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SharedResult(FilterResult):
    """A result made of answers that pods share; its verdicts are made when they are looked at.

    Attributes:
        answers: node name -> what it answered; those of other nodes may be there, too.
        lazy: the verdicts.
    """

    answers: Mapping[str, Answer]
    lazy: LazyVerdicts

    def messages(self) -> dict[str, str]:
        """What each node says, in words."""
        return self.lazy.messages()


def fitting_result(
    attempt: Attempt,
    names: Sequence[str],
    answers: Mapping[str, Answer],
    total: int,
    fitting: Sequence[str],
    refusals: Refusals,
) -> SharedResult:
    """Some node fits."""
    verdicts = LazyVerdicts(attempt, names, answers)
    return SharedResult(
        verdicts=verdicts,
        total=total,
        fitting=verdicts.only(fitting),
        refusals=tuple((attempt.named(status), count) for status, count in refusals),
        answers=answers,
        lazy=verdicts,
    )


def failed_result(attempt: Attempt, failure: NoNodeFits) -> SharedResult:
    """No node fits."""
    verdicts = LazyVerdicts(attempt, list(failure.answers), failure.answers)
    return SharedResult(
        verdicts=verdicts,
        total=failure.total,
        refusals=tuple((attempt.named(status), count) for status, count in failure.refusals),
        failure=attempt.named(failure.status),
        answers=failure.answers,
        lazy=verdicts,
    )
