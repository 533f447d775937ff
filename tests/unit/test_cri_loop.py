"""The keeper's loop calls in time, and goes on after an error."""

import os

import pytest
from leeway_standalone.cri.loop import Loop


class Done(BaseException):
    """Ends a loop that goes on for ever."""


def end() -> None:
    raise Done


def test_times_come_in_their_order() -> None:
    loop, calls = Loop(), []
    loop.after(0.02, end)
    loop.after(0.01, lambda: calls.append("later"))
    loop.after(0, lambda: calls.append("now"))
    with pytest.raises(Done):
        loop.run()
    assert calls == ["now", "later"]


def test_error_of_one_call_does_not_keep_the_others_from_theirs(capsys: pytest.CaptureFixture[str]) -> None:
    loop = Loop()
    loop.after(0, lambda: print(1 / 0))
    loop.after(0, end)
    with pytest.raises(Done):
        loop.run()
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_readable_descriptor_is_told_until_forgotten() -> None:
    loop, heard = Loop(), []
    read, write = os.pipe()
    os.write(write, b"ab")

    def hear() -> None:
        heard.append(os.read(read, 1))
        if len(heard) == 2:
            loop.forget(read)
            os.write(write, b"c")
            loop.after(0.01, end)

    loop.watch(read, hear)
    with pytest.raises(Done):
        loop.run()
    assert heard == [b"a", b"b"]
    os.close(read)
    os.close(write)
