"""Which tokens of a conversation the assistant wrote, so that a loss may count them alone.

Two ways to know. A template may say it, by {% generation %} blocks. If it does not, the text of
the first messages must be how the text of all of them begins: then an answer lies between the text
before it, which ends with the prompt for an answer, and the text with it. A template that writes
earlier turns in another way once there are later ones, such as one that leaves out what was
thought, is an error: the model is never asked what it would be trained to answer.

A model must learn to stop, so the token that ends a turn counts. What a template writes after it,
such as a line break, does not: the model is not asked for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np

from fxad.core.schema import shown
from fxad_nn.errors import TemplateError
from fxad_nn.subwords import Subwords

Span = tuple[int, int]
"""The first character of a part of a text, and the one after its last."""

_BLOCK = re.compile(r"\{%[-+]?\s*generation\s*[-+]?%\}")


def are_marked(source: str) -> bool:
    """Whether a template says itself what the assistant wrote."""
    return _BLOCK.search(source) is not None


def marked(
    text: str,
    ids: np.ndarray,
    offsets: np.ndarray,
    spans: Sequence[Span],
    tokenizer: Subwords,
) -> np.ndarray:
    """Of each id whether it lies in a generation block, as transformers counts it, or ends the turn
    right after a block that does not end it itself; bool [length].

    `ids` and `offsets` are those of the whole text; a token counts if one of its characters does.
    """
    answers, ends, eos = np.zeros(len(ids), bool), _ends(tokenizer), {*tokenizer.ids.eos}
    for span in spans:
        if not (inside := _inside(offsets, span)).size:
            continue
        answers[inside] = True
        said = [at for at in inside if text[slice(*offsets[at])].strip()]
        last, following = int(ids[said[-1]]) if said else -1, int(inside[-1]) + 1
        if following == len(ids) or last in eos:
            continue
        after = int(ids[following])
        # After another special token, such as one that closes a thought, only an end id is the
        # answer's: <|im_start|> is the next turn's.
        answers[following] = after in eos or (after in ends and last not in ends)
    return answers


def without(
    text: str,
    spans: Sequence[Span],
    untrained: Sequence[int],
    blocks: Callable[[int], list[str]],
    where: str,
) -> list[Span]:
    """The generation blocks of a conversation without those of the messages `untrained`.

    `blocks(n)` are the texts of the blocks that the first n messages have: those of a message are
    what it adds. TemplateError where earlier blocks are not the first of the whole conversation's,
    so that nobody knows which are whose.
    """
    whole = [text[start:stop] for start, stop in spans]
    left = list(enumerate(spans))
    for at in untrained:
        ends = []
        for count in (at, at + 1):
            found = blocks(count)
            if found != whole[: len(found)]:
                raise TemplateError(
                    f"{where} rewrites earlier turns: the first {count} messages have the "
                    f"generation blocks {shown(found)}, the whole conversation {shown(whole)}; so "
                    f"which are those of message {at}, which is not to be trained, is unknown"
                )
            ends.append(len(found))
        left = [(number, span) for number, span in left if not ends[0] <= number < ends[1]]
    return [span for _, span in left]


def ended(
    ids: np.ndarray, offsets: np.ndarray, spans: Sequence[Span], tokenizer: Subwords
) -> np.ndarray:
    """Of each id whether it lies in a span, up to what ends the turn there; bool [length].

    That is the first end id, else (a template with a mark of its own for the end of a turn) the
    last special token, else the span's last token.
    """
    answers = np.zeros(len(ids), bool)
    for span in spans:
        inside = _inside(offsets, span)
        end = np.flatnonzero(np.isin(ids[inside], tokenizer.ids.eos))[:1]
        if not end.size:
            end = np.flatnonzero(np.isin(ids[inside], sorted(tokenizer.special)))[-1:]
        answers[inside[: int(end[0]) + 1] if end.size else inside] = True
    return answers


def verified(
    text: str,
    count: int,
    written: Sequence[int],
    prefix: Callable[[int, bool], str],
    tokenizer: Subwords,
    where: str,
) -> list[Span]:
    """The spans of the assistant's messages in `text`, the text of all `count` messages.

    `written` are the numbers of those messages; `prefix(n, prompt)` is the text of the first n,
    with or without the prompt for an answer. TemplateError naming the message before which a prefix
    is not how `text` begins.
    """
    spans: list[Span] = []
    for at in written:
        before = _asked(at, prefix, where)
        said = f"the messages before {at}, with the prompt for it,"
        _require_prefix(before, text, said, where, SHORTER if spans else OTHERWISE)
        end = len(text) if at + 1 == count else _end(text, at, prefix, tokenizer, where)
        spans.append((len(before), max(end, len(before))))
    return spans


def _asked(at: int, prefix: Callable[[int, bool], str], where: str) -> str:
    """The text of the messages before `at`, with the prompt for it. TemplateError also for a first
    message, of a template that asks for no answer before there is a message."""
    try:
        return prefix(at, True)
    except TemplateError as error:
        if at > 0:
            raise
        raise TemplateError(
            f"{where} writes no prompt for an answer before there is a message, and message 0 is "
            "the assistant's: begin the conversation with another one, or give that message the "
            f"weight 0, so that it is context. Of no messages, {error}"
        ) from error


def _end(
    text: str, at: int, prefix: Callable[[int, bool], str], tokenizer: Subwords, where: str
) -> int:
    """Where message `at` ends in `text`, in which others follow.

    Some templates close a conversation that does not ask for an answer, with an end of text say.
    So if the text of the messages up to here is no prefix, the part of it that stays when an answer
    is asked for must be one, and nothing but special tokens and spaces may be left of it.
    """
    closed = prefix(at + 1, False)
    if text.startswith(closed):
        return len(closed)
    stays = _common(closed, prefix(at + 1, True))
    ids, offsets = tokenizer.encode_with_offsets(closed)
    within = offsets[(offsets[:, 0] < stays) & (offsets[:, 1] > stays), 0]
    stays = int(within.min(initial=stays))  # not within a token that both begin alike
    left = offsets[:, 0] >= stays
    parts = zip(ids[left].tolist(), offsets[left].tolist(), strict=True)
    if all(i in tokenizer.special or not closed[a:b].strip() for i, (a, b) in parts):
        closed = closed[:stays]
    _require_prefix(closed, text, f"the messages up to {at}", where, SHORTER)
    return len(closed)


BLOCKS = "put {% generation %} blocks in the template"
SHORTER = f"train on conversations with one answer each, or {BLOCKS}"
OTHERWISE = (
    "a model is asked for an answer by the first of the two. Some templates leave out, or move, a "
    "system message once its answer is there: put what it says into the user's message, let "
    f"answers begin as the prompt ends, or {BLOCKS}"
)
"""What to try where the first answer's own prompt is no prefix: shorter conversations are none."""


def _require_prefix(prefix: str, text: str, what: str, where: str, hint: str) -> None:
    if text.startswith(prefix):
        return
    at = _common(prefix, text)
    raise TemplateError(
        f"{where} rewrites earlier turns: {what} begin a conversation as "
        f"{shown(prefix[max(at - 20, 0) :][:60])}, but this one as "
        f"{shown(text[max(at - 20, 0) :][:60])} (character {at}); {hint}"
    )


def _common(one: str, other: str) -> int:
    """How many characters two texts begin with alike."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


def _inside(offsets: np.ndarray, span: Span) -> np.ndarray:
    """The tokens of which a character lies in the span; int64, ascending without gaps."""
    start, stop = span
    found = np.flatnonzero((offsets[:, 1] > start) & (offsets[:, 0] < stop))
    return np.arange(found[0], found[-1] + 1) if found.size else found


def _ends(tokenizer: Subwords) -> frozenset[int]:
    """What may end a turn: end ids, and other special tokens."""
    return tokenizer.special | set(tokenizer.ids.eos)
