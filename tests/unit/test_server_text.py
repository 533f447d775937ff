"""Text as it comes: whole characters, and nothing of a stop string."""

import asyncio
from collections.abc import Sequence
from typing import Any

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
from tokenizers import Tokenizer, decoders, models


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


@given(st.lists(st.integers(0, END) | st.integers(END, END + 2) | st.integers(0x80, 0x85), max_size=60))
@example([END] * 30)
def test_any_tokens_come_as_the_text_that_they_have_together(tokens: list[int]) -> None:
    detokenizer = Detokenizer(TOKENIZER)
    parts = [detokenizer.feed([token]) for token in tokens]
    assert "".join(parts) + detokenizer.flush() == TOKENIZER.decode(tokens)


@given(st.lists(st.sampled_from(range(END + 2)), min_size=9, max_size=40), st.text("aé日🎉", min_size=1, max_size=5))
def test_text_comes_with_its_last_byte_after_however_much_that_was_none(broken: list[int], text: str) -> None:
    detokenizer = Detokenizer(TOKENIZER)
    for token in broken:
        detokenizer.feed([token])
    letters = [TOKENIZER.encode(letter).ids for letter in text]
    for letter, tokens in zip(text, letters, strict=True):
        came = [detokenizer.feed([token]) for token in tokens]
        assert came[-1].endswith(letter)
    assert detokenizer.flush() == ""


class CountingTokenizer:
    """A tokenizer, and how many tokens it decoded."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.decoded = 0
        self._tokenizer = tokenizer

    def decode(self, tokens: Sequence[int], **options: bool) -> str:
        self.decoded += len(tokens)
        return self._tokenizer.decode(tokens, **options)

    def id_to_token(self, token: int) -> str | None:
        return self._tokenizer.id_to_token(token)


BROKEN = TOKENIZER.token_to_id("\u00ff")
"""A byte that is in no character."""


@pytest.mark.parametrize(
    "tokens",
    [[END], [END + 1], [BROKEN], [BROKEN, END], TOKENIZER.encode("\ufffd").ids],
    ids=["special", "unknown", "no text", "both", "written as broken"],
)
def test_tokens_that_wait_for_more_are_not_decoded_again_with_each_that_comes(tokens: list[int]) -> None:
    counting: Any = CountingTokenizer(TOKENIZER)
    detokenizer = Detokenizer(counting)
    fed = tokens * 3000
    parts = [detokenizer.feed([token]) for token in [*fed, *TOKENIZER.encode("a").ids, *fed]]
    assert "".join(parts) + detokenizer.flush() == TOKENIZER.decode(fed) + "a" + TOKENIZER.decode(fed)
    assert counting.decoded < 100 * len(fed)


def test_bytes_that_one_of_them_makes_broken_are_not_decoded_again_with_each_that_comes() -> None:
    vocabulary = {f"<0x{byte:02X}>": byte for byte in range(256)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], byte_fallback=True))
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    counting: Any = CountingTokenizer(tokenizer)
    detokenizer = Detokenizer(counting)
    fed = [0xFF, *[0x41] * 3000]
    parts = [detokenizer.feed([token]) for token in fed]
    assert "".join(parts) + detokenizer.flush() == "\ufffd" * 3001
    assert counting.decoded < 100 * len(fed)


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
