"""The words of names and texts, their stems, and words of tools that mean the same."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping

_WORD = re.compile(r"[^\W_]+")
_PART_OF_A_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[^\W\d_A-Z]+|\d+")


def words_of(text: str) -> Iterator[str]:
    """The words of a text in lower case: those of ``snake_case``, and of ``camelCase`` and the whole."""
    for word in _WORD.findall(text):
        yield word.casefold()
        parts = _PART_OF_A_WORD.findall(word)
        if len(parts) > 1:
            yield from map(str.casefold, parts)


_COMMON = """
a an and are as at be by can could do does don for from has have how i if in into is it its me my not of on or our
please s so t
some that the their them then there these this to us was we what when where which who will with you your
"""
COMMON = frozenset(_COMMON.split())
"""Words that are in every text: they do not tell tools apart."""


@functools.lru_cache(maxsize=10_000)  # indexing a catalog meets the same words again and again
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
            if _is_short(word):
                return f"{word}e"  # "moving"
            if word[-1] == word[-2] and word[-1] not in "lsz":
                return word[:-1]  # "planned"
            break
    if len(word) > _SHORTEST and word[-1] in "ey" and not _is_short(word[:-1]):
        return word[:-1]
    return word


def _is_short(word: str) -> bool:
    """Whether a word has one vowel, before its last consonant: "plan" and "plane" have different stems."""
    vowels = [place for place, letter in enumerate(word) if letter in "aeiouy"]
    return vowels == [len(word) - 2] and word[-1] not in "wx"


_SHORTEST = 3
"""The length of the longest words that have no ending."""
_ENDINGS = (
    ("ations", 4), ("ation", 4), ("ment", 4), ("ing", 3), ("ion", 4), ("ed", 3), ("er", 4), ("or", 4), ("al", 4),
)  # fmt: skip
"""Endings, each with the least length of what is left."""

_GROUPS = """
absence holiday leave vacation
accept approve confirm
accommodation hotel room stay
account login user
activate enable switch
add append attach insert put
add build compose create generate make new register write
address location place
adjust alter change correct edit modify set update
agenda calendar schedule
agreement contract
air airport flight fly plane
alert notify remind tell warn
all each enumerate list show what which who
allocate assign delegate give responsible
allow grant permit share
analyze evaluate examine study
angle degree rotate turn
anonymize blur hide redact
answer reply respond
answer response
apartment flat home house property
applicant candidate
archive hide
article doc document page
ask invite request
authenticate login
automatic recurring regular repeat standing
bigger compress reduce resize scale shrink smaller
bill invoice
blob object
block freeze lock suspend
book hold plan reserve schedule
book novel
bringback restore
browse discover find locate look lookup query search
bug defect error issue problem ticket
business company firm organization
buy order purchase
buyer client customer shopper
calculate compute estimate measure
calloff cancel
cancel abort revoke withdraw
caption subtitle
capture collect take
case request ticket
cash currency money
channel room
charge pay payment transaction
chart dashboard graph
chat conversation message talk
check inspect prove test validate verify
choose pick select
class course lesson
clean prune purge
clinic doctor medical physician
clone copy duplicate
close complete done end finish resolve settle
closedown close archive
cold degree heat temperature thermostat warm
combine join merge unite
comment note remark
computer host instance machine server vm
contact people person
contract agreement deal
convert transform translate turn
cost fare fee price rate
coupon discount voucher
crash error exception failure
credential key password secret token
crop cut trim
csv sheet spreadsheet table
deactivate disable mute silence
deal opportunity sale
dealwith resolve
decline deny refuse reject
delete destroy drop erase remove rid terminate throw
deliver dispatch mail send ship
deploy launch publish release ship
detect identify recognise recognize
direction map route way
directory folder
dish food meal menu
disk drive storage volume
drug medication medicine prescription
eat food restaurant
email mail message
employee staff worker
encrypt protect secure
end halt kill quit shut stop
enroll join register subscribe
enter fill
escalate raise
event appointment meeting
execute perform run trigger
exercise run training workout
expire end
explain describe why
export download fetch save
extract read ocr
fetch get read retrieve see show tell view
file attachment document
fillout fill
film movie video
findout get find
fix repair
follow subscribe track watch
forecast rain snow temperature weather
fulfill ship
get what where when how
getback restore return
getrid delete remove
goback restore revert
gothrough read
grade mark score
group team
handin submit
handout issue
hear listen play
heart pulse
image photo picture
inventory stock
investment portfolio share stock
iteration sprint
jam traffic
job position vacancy
job task work
kickoff start
late overdue
later postpone reschedule schedule
launch open start begin
lead prospect
light lamp
like rate vote
listing offer advertisement
log note record track
log output print
loginto login
lookup find get search
member join
member people person user
mobile phone
moneyback refund
monthly yearly weekly subscription recurring
move put relocate shift transfer
music song track
near nearby place
news newspaper story
next queue
openup open
opinion feedback rating review
package parcel shipment
passon forward
pause hold moment stop
payback refund reimburse
permission privilege role
pickup collect
pointout comment
post publish send tell write
poweron start
printout print
profile company
pullout withdraw
putin add
question ask
questionnaire survey
rail train
renew extend prolong
replace swap rotate
repo repository project
rerun restart retry reboot
restore revert rollback undo undelete recover
return back
revision version
roll-back rollback
room seat place
salary wage pay
sendout send
session login
setup create configure
shop store
short summarize summary
shutdown stop
sign signature
signup enroll register subscribe
sms text
speech audio transcribe voice
split divide separate
statistics number count figure
submit hand
switchoff stop disable
switchon start enable
sync update
takeoff delete remove
takeout extract delete remove
text word sentence
throwaway delete
turnoff stop disable
turnon start enable
upload put save store
void invalid
wallet coin
wrapup close complete finish
writedown log note
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
