"""Container logs are what the container wrote, in entries that the kubelet can read."""

from datetime import datetime

from hypothesis import given
from hypothesis import strategies as st
from leeway_standalone.cri.logs import MAX_CONTENT_BYTES, ContainerLog, LineFramer, timestamp

NOW_NS = 1_700_000_000_123_456_789
chunks = st.lists(
    st.one_of(
        st.binary(max_size=50),
        st.text(alphabet="ab\n", max_size=40).map(str.encode),
        st.integers(1, 3 * MAX_CONTENT_BYTES).map(lambda length: b"x" * length),
    ),
    max_size=8,
)


def entries_of(data: bytes) -> list[tuple[bytes, bytes, bytes]]:
    """Stream, tag and content of each entry."""
    assert not data or data.endswith(b"\n")
    return [tuple(line.split(b" ", 3)[1:]) for line in data.split(b"\n")[:-1]]


@given(chunks)
def test_entries_put_together_are_what_was_written(written: list[bytes]) -> None:
    framer = LineFramer("stdout")
    framed = b"".join(framer.feed(chunk, NOW_NS) for chunk in written) + framer.finish(NOW_NS)
    content = b"".join(part + b"\n" * (tag == b"F") for _, tag, part in entries_of(framed))
    assert content == b"".join(written)
    assert all(len(part) <= MAX_CONTENT_BYTES for *_, part in entries_of(framed))


@given(chunks)
def test_whole_lines_are_written_at_once(written: list[bytes]) -> None:
    framer = LineFramer("stderr")
    for chunk in written:
        framed = framer.feed(chunk + b"\n", NOW_NS)
        assert entries_of(framed)[-1][1] == b"F"
        assert not framer.finish(NOW_NS)


def test_entry_has_time_stream_and_tag() -> None:
    assert LineFramer("stderr").feed(b"a b\n", NOW_NS) == b"2023-11-14T22:13:20.123456789Z stderr F a b\n"


@given(st.integers(0, 4_000_000_000 * 10**9))
def test_timestamps_read_back(now_ns: int) -> None:
    text = timestamp(now_ns)
    seconds = datetime.fromisoformat(text[:19] + "+00:00").timestamp()
    assert int(seconds) * 10**9 + int(text[20:29]) == now_ns


def test_container_without_a_log_path_runs_unlogged() -> None:
    log = ContainerLog("")
    log.write("stdout", b"lost\n", NOW_NS)
    log.close()
