"""The words of names and texts, their stems, and words of tools that mean the same."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

_WORD = re.compile(r"[^\W_]+")
_PART_OF_A_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[^\W\d_A-Z]+|\d+")


def words_of(text: str) -> Iterator[str]:
    """The words of a text in lower case; those of ``snake_case`` and ``camelCase``, and the whole ``camelcase``.

    Words that are in every text, such as "the", are left out.
    """
    for word in _WORD.findall(text):
        whole = word.casefold()
        if whole in _STOP_WORDS:
            continue
        yield whole
        parts = _PART_OF_A_WORD.findall(word)
        if len(parts) > 1:
            yield from map(str.casefold, parts)


_COMMON = """
a an and are as at be by can do does for from has have how i if in into is it its me my of on or our please so
some that the their them then there these this to us was we what when where which who will with you your
"""
_STOP_WORDS = frozenset(_COMMON.split())


def stem(word: str) -> str:
    """The stem of an English word, roughly: "creating", "created", "creates" and "creation" have the same."""
    if len(word) <= _SHORTEST or not word.isascii():
        return word
    if word.endswith("ies"):
        word = f"{word[:-3]}y"
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    for ending, least in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= least:
            word = word[: -len(ending)]
            if len(word) > _SHORTEST and word[-1] == word[-2] and word[-1] not in "lsz":
                word = word[:-1]  # "planned"
            break
    return word[:-1] if len(word) > _SHORTEST and word[-1] in "ey" else word


_SHORTEST = 3
"""The length of the longest words that have no ending."""
_ENDINGS = (
    ("ations", 4), ("ation", 4), ("ment", 3), ("ing", 3), ("ion", 4), ("ed", 3), ("er", 4), ("or", 4), ("al", 4),
)  # fmt: skip
"""Endings, each with the least length of what is left."""

_GROUPS = """
add create make new insert register
append add attach
answer reply respond
assign allocate
book reserve schedule
cancel abort revoke call-off
change update edit modify set adjust rename alter
check verify validate test inspect
close finish complete resolve end
convert translate transform
copy duplicate clone
delete remove erase drop destroy rid
deploy release ship publish rollout
download fetch export save
find search look query lookup locate discover
get show read fetch retrieve view display see
give grant allow share
invite add
join merge combine
list show enumerate all every
move transfer relocate
notify alert warn remind
open start begin launch
pause suspend hold freeze
pay charge bill
post send write publish
restart reboot
run execute trigger start
send deliver dispatch mail
stop halt terminate end shut kill
undo revert restore rollback
upload put store
article page document
bug issue defect problem ticket
chat conversation message
client customer account buyer
computer server machine instance host
contact person people lead
cost price fee rate
email mail
error failure exception
event meeting appointment
file document attachment
folder directory
forecast prediction outlook
image picture photo
invoice bill
job task work
key secret credential password
movie film
music song track
picture image photo
repo repository
room channel
staff employee worker
ticket case request
user member person people
"""


def _synonyms() -> Mapping[str, tuple[str, ...]]:
    found: dict[str, dict[str, None]] = {}
    for line in _GROUPS.split("\n"):
        group = [stem(word) for word in line.split()]
        for word in group:
            found.setdefault(word, {}).update(dict.fromkeys(group))
    return {word: tuple(one for one in group if one != word) for word, group in found.items()}


SYNONYMS = _synonyms()
"""Stems of the same or nearly the same meaning, by stem."""
