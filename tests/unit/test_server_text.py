"""Text as it comes: whole characters, and nothing of a stop string."""

import asyncio
from collections.abc import Sequence

import pytest
from byte_tokenizer import END, TOKENIZER
from hypothesis import example, given
from hypothesis import strategies as st
from leeway_engine.messages import TokenEvent
from leeway_engine.scheduling.request import FinishReason
from leeway_engine.server.detokenizer import Detokenizer
from leeway_engine.server.generation import Piece, pieces
from leeway_engine.server.stop_strings import StopStrings
from leeway_engine.server.token_stream import GenerationError, TokenStream


def fed(stops: StopStrings, parts: Sequence[str]) -> list[str]:
    return [*(stops.feed(part) for part in parts), stops.flush()]


@given(st.text())
@example("é🎉日本")
def test_any_text_comes_back_whole_without_a_broken_character(text: str) -> None:
    detokenizer = Detokenizer(TOKENIZER)
    parts = [detokenizer.feed([token]) for token in TOKENIZER.encode(text).ids]
    assert "".join(parts) == text
    assert detokenizer.flush() == ""


def test_a_character_comes_with_its_last_byte_and_an_incomplete_one_at_the_end() -> None:
    detokenizer = Detokenizer(TOKENIZER)
    tokens = TOKENIZER.encode("é🎉").ids
    assert [detokenizer.feed([token]) for token in tokens[:-1]] == ["", "é", "", "", ""]
    assert detokenizer.flush() == "\ufffd"


def test_stop_tokens_have_no_text() -> None:
    detokenizer = Detokenizer(TOKENIZER)
    assert detokenizer.feed(TOKENIZER.encode("a").ids) + detokenizer.feed([END]) + detokenizer.flush() == "a"


def test_nothing_of_a_stop_string_goes_out_though_it_comes_in_pieces() -> None:
    stops = StopStrings(["DEFGHIJ"])
    assert fed(stops, ["ABCD", "EFG", "HIJ", "KL"][:3]) == ["ABC", "", "", ""]
    assert stops.found


def test_the_first_of_several_stops_wins() -> None:
    stops = StopStrings(["later", "soon"])
    assert fed(stops, ["so much text, soon and later"])[0] == "so much text, "


@given(st.text("ab", max_size=30), st.lists(st.text("ab", min_size=1, max_size=4), max_size=3), st.data())
def test_pieces_change_nothing(text: str, stops: list[str], data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=10)))
    parts = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    watch = StopStrings(stops)
    out = ""
    for part in parts:
        out += watch.feed(part)
        if watch.found:
            break
    out += watch.flush()
    ends = [end for end in range(len(text) + 1) if any(text[:end].endswith(stop) for stop in stops)]
    if not ends:
        assert (out, watch.found) == (text, False)
    else:
        assert watch.found
        assert not any(stop in out for stop in stops)
        assert text.startswith(out)


def event(text: str, *, made: int, finish: FinishReason | None = None) -> TokenEvent:
    return TokenEvent("r", tuple(TOKENIZER.encode(text).ids), finish, 3, made)


def generated(stream: TokenStream, stops: Sequence[str] = ()) -> list[Piece]:
    async def collect() -> list[Piece]:
        return [piece async for piece in pieces(stream, Detokenizer(TOKENIZER), StopStrings(stops))]

    return asyncio.run(collect())


def test_tokens_that_waited_for_a_slow_client_go_out_together() -> None:
    stream = TokenStream()
    stream.put(event("a", made=1))
    stream.put(event("b", made=2))
    stream.put(event("c", made=3, finish=FinishReason.LENGTH))
    assert generated(stream) == [Piece("abc", "length", 3, 3)]


def test_a_stop_string_ends_the_text_and_the_count_of_tokens() -> None:
    stream = TokenStream()
    for made, letter in enumerate("abcdef", start=1):
        stream.put(event(letter, made=made))
    assert generated(stream, ["cd"]) == [Piece("ab", "stop", 3, 4)]


@pytest.mark.parametrize(("stops", "whole"), [(["cd"], True), (["xy"], False)])
def test_a_stop_string_makes_the_answer_whole_before_the_loop_ends_it(stops: list[str], whole: bool) -> None:
    async def collect() -> TokenStream:
        stream = TokenStream()
        stream.put(event("abcd", made=4))
        source = pieces(stream, Detokenizer(TOKENIZER), StopStrings(stops))
        await anext(source)
        return stream

    stream = asyncio.run(collect())
    assert (stream.whole, stream.ended) == (whole, False)


def test_a_half_stop_string_at_the_end_is_text() -> None:
    stream = TokenStream()
    stream.put(event("abc", made=3, finish=FinishReason.LENGTH))
    assert generated(stream, ["cd"]) == [Piece("abc", "length", 3, 3)]
    assert stream.ended


def test_a_stream_whose_stop_string_came_is_whole_though_the_loop_has_more_to_say() -> None:
    stream = TokenStream()
    stream.put(event("abcd", made=4))
    assert not stream.whole
    assert generated(stream, ["cd"]) == [Piece("ab", "stop", 3, 4)]
    assert (stream.whole, stream.ended) == (True, False)


def test_while_text_is_held_back_nothing_empty_goes_out() -> None:
    async def collect() -> list[str]:
        stream = TokenStream()
        source = pieces(stream, Detokenizer(TOKENIZER), StopStrings(["cdef"]))
        texts: list[str] = []

        async def read() -> None:
            texts.extend([piece.text async for piece in source])

        reader = asyncio.create_task(read())
        for made, letter in enumerate("cdcdexy", start=1):
            stream.put(event(letter, made=made, finish=FinishReason.LENGTH if letter == "y" else None))
            # The reader takes each token by itself.
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        await reader
        return texts

    assert asyncio.run(collect()) == ["cd", "cdex", "y"]


def test_what_came_before_an_error_goes_out_before_it() -> None:
    async def collect() -> None:
        stream = TokenStream()
        stream.put(event("a", made=1))
        stream.fail(GenerationError("engine_died", "gone"))
        source = pieces(stream, Detokenizer(TOKENIZER), StopStrings(()))
        assert await anext(source) == Piece("a", None, 3, 1)
        with pytest.raises(GenerationError, match="gone"):
            await anext(source)

    asyncio.run(collect())
