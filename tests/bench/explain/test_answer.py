"""What becomes of a language model's answer: its shape, text, length and numbers are checked."""

import json

import pytest

from drumbeat.bench.explain.answer import check, text_of
from drumbeat.core.errors import LanguageModelFailed

FIGURES = (1234.5, 8, 60, 12.34, 0.025, 0, 99.95, 51_234, 2_600_000)


def body(content: object) -> bytes:
    return json.dumps({"choices": [{"message": {"content": content}}]}).encode()


@pytest.mark.parametrize(
    ("content", "text"), [("It was slow.", "It was slow."), ([{"type": "text", "text": "It "}, {"text": "was."}, 5], "It was.")]
)
def test_the_text_of_an_answer_is_found(content: object, text: str) -> None:
    assert text_of(body(content)) == text


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"", "expected JSON from the language model, got something else"),
        (b"<!doctype html><h1>Log in</h1>", "expected JSON from the language model, got HTML"),
        (b"{", "expected JSON"),
        (b"\xff\xfe", "expected JSON"),
        (b"[" * 100_000, "expected JSON"),
        (b"null", "expected choices[0].message.content"),
        (b"[]", "expected choices[0].message.content"),
        (b'{"choices": []}', "expected choices[0].message.content"),
        (b'{"choices": [5]}', "expected choices[0].message.content"),
        (b'{"choices": [{"message": null}]}', "expected choices[0].message.content"),
        (b'{"error": {"message": "no"}}', "expected choices[0].message.content"),
        (body(None), "expected a text from the language model, got none"),
        (body("  \n"), "expected a text from the language model, got none"),
        (body(5), "expected a text from the language model, got none"),
        (body({"text": "x"}), "expected a text from the language model, got none"),
    ],
)
def test_an_answer_of_another_shape_is_refused(answer: bytes, said: str) -> None:
    with pytest.raises(LanguageModelFailed) as refused:
        text_of(answer)

    assert said in str(refused.value)
    assert str(refused.value).isprintable()


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("  It   was\tslow. ", "It was slow."),
        ("One.\r\n\r\nTwo.", "One.\nTwo."),
        ("\x1b[31mRed\x00 \u202eabc\u200b.", "[31mRed abc ."),
        ("Straße 🥁 ok.", "Straße 🥁 ok."),
    ],
)
def test_a_text_is_kept_plain(text: str, clean: str) -> None:
    assert check(text, FIGURES, 1500).text == clean


@pytest.mark.parametrize("text", ["<script>alert(1)</script>", "See <b>this</b>.", "x <img src=y onerror=z>", "<!-- x -->"])
def test_markup_is_refused(text: str) -> None:
    with pytest.raises(LanguageModelFailed, match="expected plain text from the language model, got markup"):
        check(text, FIGURES, 1500)


def test_a_comparison_is_no_markup() -> None:
    assert check("p95 < 60 ms and 8 > 0.", FIGURES, 1500).text == "p95 < 60 ms and 8 > 0."


def test_nothing_but_control_characters_is_refused() -> None:
    with pytest.raises(LanguageModelFailed, match="only control characters"):
        check("\x00\x01\x1b", FIGURES, 1500)


def test_a_long_text_is_cut_after_a_sentence() -> None:
    cut = check("It was slow. " * 100, FIGURES, 200)

    assert cut.shortened
    assert cut.text == " ".join(["It was slow."] * 15)
    assert not check("It was slow.", FIGURES, 200).shortened


def test_a_long_text_without_a_sentence_is_cut_where_it_must_be() -> None:
    cut = check("slow" * 1000, FIGURES, 100)

    assert (len(cut.text), cut.text[-1], cut.shortened) == (100, "…", True)


@pytest.mark.parametrize(
    "text",
    [
        "It did 1,234.5 operations/s on 8 connections.",
        "It did 1234 operations/s, about 1,200, or 1.2k.",
        "p95 was 12.3 ms, p99.9 12 ms; 99.95 % were available, 0 lost.",
        "The 95th percentile was 12.34 ms in 60s.",
        "Errors: 0.025 %, or 0.03 %.",
        "1. It was slow.\n2. Try again.",
        "51,234 operations, about 51,000 or 51k; 2.6M rows.",
        "It changed by -12.34 %, +12.34 %, −12.3 %.",
    ],
)
def test_figures_may_be_rounded(text: str) -> None:
    assert check(text, FIGURES, 1500).unknown_numbers == ()


@pytest.mark.parametrize(
    ("text", "unknown"),
    [
        ("It did 4,321 operations/s.", ("4,321",)),
        ("About 1,000 operations/s, 8 connections.", ("1,000",)),
        ("Try 64 connections, or 64 again, then 128.", ("64", "128")),
        ("It had 9 connections.", ("9",)),
        ("It was 10x slower.", ("10",)),
        ("Half, .5 ms.", ("5",)),
        ("٤٢ connections, ½ of them.", ("٤٢", "½")),
        ("12.4 ms.", ("12.4",)),
    ],
)
def test_numbers_that_are_no_figures_are_flagged(text: str, unknown: tuple[str, ...]) -> None:
    assert check(text, FIGURES, 1500).unknown_numbers == unknown


def test_zero_is_no_rounding_of_a_small_figure() -> None:
    assert check("0 errors.", [0.4], 1500).unknown_numbers == ("0",)


def test_a_text_of_which_most_numbers_are_unknown_is_refused() -> None:
    with pytest.raises(LanguageModelFailed, match="not about this run: 3 of its 4 numbers"):
        check("8 connections, 4,321 operations/s, p95 77 ms, 31 errors.", FIGURES, 1500)
    assert check("8 connections, 60 s, 0 errors; try 64, 128 or 256.", FIGURES, 1500).unknown_numbers == ("64", "128", "256")
