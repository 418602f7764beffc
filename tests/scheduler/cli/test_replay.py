"""`replay`: exit codes, and what is printed."""

import json

from scheduler.flight_recorder.file import lines
from tests.scheduler.flight_recorder.test_replay import decided, one_after_the_other


def recording() -> bytes:
    world, engine, recorder = one_after_the_other()
    decided(world, engine, "a")
    return b"".join(lines(recorder.recording(), recorder.environment))


def test_decisions_that_come_out_the_same(command, write) -> None:
    done = command("replay", write("r.jsonl", recording().decode()))
    assert done.code == 0
    assert "1 of 1 decisions come out the same." in done.out


def test_a_decision_that_comes_out_otherwise(command, write) -> None:
    other = recording().replace(b'"device":"gpu-0"', b'"device":"gpu-2"')
    path = write("r.jsonl", other.decode())
    done = command("replay", path)
    assert done.code == 1
    assert "now: node n00" in done.out
    tree = json.loads(command("replay", path, "-o", "json").out)
    assert tree["different"] == 1
    assert tree["decisions"][0]["pod"] == "default/a"
    assert tree["decisions"][0]["same"] is False


def test_one_pod_only(command, write) -> None:
    done = command("replay", write("r.jsonl", recording().decode()), "--pod", "default/other")
    assert done.code == 0
    assert "0 of 0 decisions" in done.out


def test_what_is_no_recording(command, write) -> None:
    done = command("replay", write("r.jsonl", "{}"))
    assert done.code == 2
    assert "line 1: not a recording of version 1" in done.err


def test_a_file_that_is_not_there(command) -> None:
    done = command("replay", "/nowhere/r.jsonl")
    assert done.code == 2
    assert "No such file" in done.err
