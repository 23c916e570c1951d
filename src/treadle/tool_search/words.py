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
please s so t some that the their them then there these this to us was we what when where which who will with you
your
"""
COMMON = frozenset(_COMMON.split())
"""Words that are in every text, so that they do not distinguish tools."""


_IRREGULAR_FORMS = """
begin began begun, bind bound, break broke broken, bring brought, build built, buy bought, choose chose chosen,
come came, draw drew drawn, drive drove driven, fall fell fallen, find found, fly flew flown, forget forgot,
freeze froze frozen, get got gotten, give gave given, go went gone, hang hung, hear heard, hide hid hidden, hold
held, index indices, keep kept, know knew known, lead led, leave left, lend lent, lose lost, make made, meet
met, pay paid, person people, ring rang rung, run ran, say said, see saw seen, sell sold, send sent, show shown,
speak spoke spoken, spend spent, steal stole stolen, take took taken, teach taught, tell told, think thought,
throw threw thrown, wear wore worn, win won, withdraw withdrew withdrawn, write wrote written
"""
_IRREGULAR = {
    form: forms.split()[0] for forms in _IRREGULAR_FORMS.split(",") for form in forms.split()[1:]
}
"""The first form of a word, by its irregular ones."""


@functools.lru_cache(maxsize=10_000)  # indexing a catalog meets the same words again and again
def stem(word: str) -> str:
    """The stem of an English word, roughly: "creating", "created", "creates" and "creation" have the same."""
    word = _IRREGULAR.get(word, word)
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
    vowels = [position for position, letter in enumerate(word) if letter in "aeiouy"]
    return vowels == [len(word) - 2] and word[-1] not in "wx"


PARTICLES = frozenset({"again", "away", "back", "down", "in", "off", "on", "out", "over", "up"})
"""The second words of phrasal verbs: the synonyms have those verbs as one word, such as "switchoff"."""

_SHORTEST = 3
"""The length of the longest words that have no ending."""
_ENDINGS = (
    ("ations", 4), ("ation", 4), ("ment", 4), ("ing", 3), ("ion", 4), ("ed", 3), ("er", 4), ("or", 4), ("al", 4),
)  # fmt: skip
"""Endings, each with the least length of the stem before it."""

_GROUPS = """
abandon cancel discard scrap, abort interrupt cancel stop, absence holiday leave vacation, accept agree approve ok
yes, accept approve confirm, access permission privilege right, accommodation hotel room stay, account login user,
ache pain symptom, activate enable switch, activity history log, add append attach insert put, add build compose
create generate make new register write, address location place, adjust alter change correct edit modify set
update, advert ad campaign marketing, advertise post publish, affix attach pin, agenda calendar schedule, air
airport flight fly plane, alarm alert notification threshold warning, alert notify remind tell warn, all each
enumerate list show what which who, allocate assign delegate give responsible, allow grant permit share, analyze
evaluate examine study, angle degree rotate turn, anonymize blur hide redact, answer reply respond, apartment flat
home house property, applicant candidate, archive hide, archive putaway shelve, article blog post story, article
doc document page, artist band musician singer, ask invite request, attach connect include link, authenticate
login, automatic recurring regular repeat standing, autoreply vacation, avatar photo picture, backup dump
snapshot, ban block, begin initiate kickoff start, bigger compress reduce resize scale shrink smaller, bill
invoice, blob object, block freeze lock suspend, book hold plan reserve schedule, book novel, bookmark favorite
like star, branch ref, breakup split, bring import load migrate, bringback restore, broadcast live stream, browse
discover find locate look lookup query search, bug defect error issue problem ticket, build ci job pipeline
workflow, bulk batch many, business company firm organization, buy order purchase, buyer client customer shopper,
calculate compute estimate measure, call dial phone ring telephone, calloff cancel, cancel abort revoke withdraw,
caption subtitle, capture collect take, case request ticket, cash currency money, cease end stop discontinue,
channel room, charge pay payment transaction, chart dashboard graph, chat conversation message talk, check inspect
prove test validate verify, choose pick select, class course lesson, clean prune purge, clear empty purge wipe,
clinic doctor medical physician, clip film movie video, clone copy duplicate, close complete done end finish
resolve settle, closedown close archive, code script source, coin bitcoin crypto, cold degree heat temperature
thermostat warm, colleague coworker member user, collect gather, combine join merge unite, comment note remark,
compile build, complete finalise finalize, compose draft prepare write, computer host instance machine server vm,
conclude end close finish, connect join attach, contact person, contract agreement deal, contribution commit,
convert transform translate turn, correct reword rephrase edit update, cost fare fee price rate, coupon discount
voucher, courier carrier shipping, crash error exception failure, create define develop establish, credential key
password secret token, cronjob schedule, crop cut trim, csv sheet spreadsheet table, cutoff block stop, cutout
remove extract, database db sql, deactivate disable mute silence, deadline due milestone, deal opportunity sale,
dealwith resolve, debt loan mortgage, decline deny refuse reject, decompress extract unzip, define add, delay
reschedule, delete destroy drop erase remove rid terminate throw, deliver dispatch mail send ship, demolish
destroy delete, deploy launch publish release ship, deploy rollout release, detach disconnect unlink unmount,
detail description info information get, detect identify recognise recognize, diagnose analyze, direction map
route way, directory folder, dish food meal menu, disk drive storage volume, dismiss fire layoff terminate, drug
medication medicine prescription, eat food restaurant, elapse expire, email mail message, employ hire, employee
staff worker, encrypt protect secure, end halt kill quit shut stop, enroll join register subscribe, enter fill,
environment workspace, escalate raise, estimate guess predict, event appointment meeting, exam quiz test, exchange
convert swap, execute perform run trigger, exercise run training workout, exit leave logout quit, expense cost
spending receipt, expire end, explain describe why, export download fetch save, extract read ocr, fail error,
favour like, fetch get read retrieve see show tell view, file attachment document, fillout fill, findout get find,
finish close done shut, fix repair, flag tag mark label, follow subscribe track watch, forecast rain snow
temperature weather, fulfill ship, get what where when how, getback restore return, getrid delete remove, giveup
cancel stop, goback restore revert, gothrough read, grade mark score, grow scale, guest visitor, hand give, handin
submit, handout issue, handover transfer assign, hangup end, hear listen play, heart pulse, hold keep, ignore
skip, image photo picture, inbox mailbox email, incident outage downtime, income salary wage payslip, individual
person, inform notify, insight statistics analytics report, internet network, inventory stock, investment
portfolio share stock, iteration sprint, jam traffic, job position vacancy, job task work, journey route travel,
laptop computer, last latest recent current, late overdue, later postpone reschedule schedule, launch open start
begin, lead prospect, letgo terminate, light lamp, like rate vote, listing offer advertisement, log journal, log
note record track, log output print, login signin, loginto login, logout signout logoff, lookfor find search,
lookup get search, lower reduce decrease dim, manual help article, map location, match filter, meeting call,
member join, member person user, mention handle, microservice service, mobile phone, moneyback refund, monitor
alert watch, monthly yearly weekly subscription recurring, move put relocate shift transfer, music song track,
near nearby place, newest latest, news newspaper story, next queue, note memo, notice notification, notify follow,
notify ping subscribe watch, nudge remind notify, openup open, opinion feedback rating review, outofoffice
vacation, owe debt due, package parcel shipment, pass forward, passalong forward, passenger traveler, passon
forward, password passcode pin, pause hold moment stop, pause interrupt hold, pay spend transfer, payback refund
reimburse, percent percentage, permission privilege role right, pickup collect, playback listen play, podcast show
episode, pointout comment, poll survey questionnaire, post publish send tell write, postcode address, poweron
start, price quote, printout print, prior past previous earlier, procedure process, profile company, provision
create, pullout withdraw, pullrequest merge, putback return restore, putin add, question ask, rail train, raise
increase, rank sort, reactivate enable resume, rebuild build, receipt bill, redo repeat rerun retry, release
version, reload restart refresh, remember reminder, renew extend prolong, replace swap rotate, repo repository
project, rerun restart retry reboot, restore revert rollback undo undelete recover, result answer response
outcome, resume continue unpause, return back, revision version, revoke undo withdraw, roll-back rollback, room
seat place, rotate renew, row record, sack fire terminate, salary wage pay, schema table, scope permission, seller
vendor merchant, sendout send, session login, setup create configure, setup define, shop store, short summarize
summary, shutdown stop, shutoff stop disable, sick absence leave, sign signature, signup enroll register
subscribe, site page website, size scale resize, sms text message, snippet code, snooze mute, sound volume, speech
audio transcribe voice, split divide separate, stage step, start boot, statistics number count figure, status
state condition progress, submit hand, sum total, surname name, swap change, switch toggle, switchoff stop
disable, switchon start enable, syllabus course, sync update, takeaway remove, takeback return cancel, takedown
remove delete, takeoff delete remove, takeout extract delete remove, team group department, teardown delete
remove, term clause condition, test trial, text word sentence, theme topic, throwaway delete, throwout delete
remove, tidy clean prune, tour viewing visit, trace log, training course workout, training lesson, transcript
transcribe, trash delete, travel trip, tryagain retry restart rerun, turnoff stop disable, turnon start enable,
unblock enable unlock, unlock open, unmute enable, unsubscribe cancel, upcoming next schedule, upgrade update
change, upload put save store, vehicle car, voicemail recording, void invalid, wait pause, wallet coin, word term,
wrapup close complete finish, writedown log note, writeto send, writeup document, zone region
"""


def _synonyms() -> Mapping[str, tuple[str, ...]]:
    found: dict[str, dict[str, None]] = {}
    for words in _GROUPS.split(","):
        group = [stem(word) for word in words.split()]
        for word in group:
            found.setdefault(word, {}).update(dict.fromkeys(group))
    return {word: tuple(one for one in group if one != word) for word, group in found.items()}


SYNONYMS = _synonyms()
"""Stems of the same or nearly the same meaning, by stem."""
