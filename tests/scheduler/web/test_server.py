"""How answers leave the server."""

from typing import Any

import h11
import pytest

from scheduler.web.server import HOLD_BYTES, WholeAnswers


class Transport:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: list[bytes | str] = []

    def write(self, data: bytes) -> None:
        self.told.append(data)

    def close(self) -> None:
        self.told.append("close")

    def get_extra_info(self, name: str) -> Any:
        return name


class Call:
    """A request that has come in whole, and its answer."""

    def __init__(self) -> None:
        self.conn = h11.Connection(h11.SERVER)
        self.conn.receive_data(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
        while not isinstance(self.conn.next_event(), h11.EndOfMessage):
            pass
        self.transport = Transport()
        self.answers = WholeAnswers(self.transport, self.conn)

    def send(self, event: Any) -> None:
        self.answers.write(self.conn.send(event))

    def head(self, length: int) -> None:
        headers = [("content-length", str(length))]
        self.send(h11.Response(status_code=200, headers=headers))


@pytest.fixture
def call() -> Call:
    return Call()


def test_head_and_body_leave_together(call: Call) -> None:
    call.head(4)
    call.send(h11.Data(data=b"body"))
    assert call.transport.told == []
    call.send(h11.EndOfMessage())
    [sent] = call.transport.told
    assert isinstance(sent, bytes)
    assert sent.startswith(b"HTTP/1.1 200")
    assert sent.endswith(b"\r\n\r\nbody")


def test_what_comes_before_an_answer_does_not_wait_for_it(call: Call) -> None:
    call.send(h11.InformationalResponse(status_code=100, headers=[]))
    assert len(call.transport.told) == 1


def test_an_answer_of_any_length_is_not_held_for_ever(call: Call) -> None:
    call.head(HOLD_BYTES + 5)
    call.send(h11.Data(data=bytes(HOLD_BYTES)))
    call.send(h11.Data(data=b"more"))
    assert sum(map(len, call.transport.told)) > HOLD_BYTES


def test_closing_sends_what_is_held_first(call: Call) -> None:
    call.head(4)
    call.answers.close()
    assert len(call.transport.told) == 2
    assert call.transport.told[-1] == "close"


def test_everything_else_is_the_transports_own(call: Call) -> None:
    assert call.answers.get_extra_info("peername") == "peername"
