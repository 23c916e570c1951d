"""The place where a picture is drawn: the last one counts, nobody waits for another, and it ends in order."""

import io
import logging
import threading

import pytest
from rich.text import Text

from treadle.reports.live.board import Board
from treadle.reports.live.screen import Screen

from .emulated import Terminal

SECONDS = 30


@pytest.fixture
def stream(monkeypatch):
    for name, value in {"TERM": "xterm", "COLUMNS": "80", "LINES": "24"}.items():
        monkeypatch.setenv(name, value)
    return io.StringIO()


def screen_on(stream, picture, **how):
    return Screen(stream, picture, Board(lambda: 0.0), **{"transient": False, **how})


def seen(stream):
    return Terminal(80, 24).feed(stream.getvalue())


def test_a_picture_of_before_the_end_does_not_replace_the_last_one(stream):
    """It may be under way in the thread that draws while the screen is closed."""
    asked = threading.Event()

    def picture(*_):
        if threading.current_thread().name == "treadle-live":
            asked.set()
            screen._done.wait(SECONDS)
            return [Text("of before")]
        return [Text("the last")]

    screen = screen_on(stream, picture)
    screen.open()
    assert asked.wait(SECONDS)
    screen.close()
    assert seen(stream).text == "the last"


def test_a_picture_is_made_for_the_size_and_the_encoding_of_the_terminal(stream):
    asked = []
    screen = screen_on(stream, lambda *given: asked.append(given) or [])
    screen.open()
    screen.close()
    assert set(asked) == {(80, 23, "utf-8")}  # the last line stays free


@pytest.mark.parametrize("transient", [False, True])
def test_pictures_replace_each_other_whatever_their_heights(stream, transient):
    pictures = [[]]
    said = []
    screen = screen_on(stream, lambda *_: list(map(Text, pictures[-1])), transient=transient)
    screen.open()
    for height in (3, 1, 5, 0, 2):
        pictures.append([f"{number} of {height}" for number in range(height)])
        screen.tick()
        assert seen(stream).text.splitlines() == said + pictures[-1]
        said.append(f"height {height}")
        screen.show(said[-1])
    screen.close()
    assert seen(stream).text.splitlines() == said + ([] if transient else pictures[-1])
    assert seen(stream).cursor_is_shown


def test_a_picture_that_cannot_be_made_ends_the_view_and_nothing_else(stream, caplog):
    """It is in the log for those who look for it."""
    asked = threading.Event()

    def picture(*_):
        asked.set()
        raise ZeroDivisionError

    caplog.set_level(logging.DEBUG, "treadle.reports")
    screen = screen_on(stream, picture)
    screen.open()
    assert asked.wait(SECONDS)
    screen.close()
    screen.close()
    assert seen(stream).cursor_is_shown
    assert [record.message for record in caplog.records] == ["the live view stops: drawing failed"]


class Talkative(io.StringIO):
    """A terminal in the midst of whose writing somebody else writes, as what tidies up may do."""

    encoding = "utf-8"
    speak = None

    def write(self, text):
        if self.speak is not None and "picture" in text:
            speak, self.speak = self.speak, None
            speak()
        return super().write(text)


def test_who_writes_in_the_midst_of_drawing_waits_for_nobody(stream):
    """Not even for himself: it is written once the picture is drawn."""
    talkative = Talkative()
    screen = screen_on(talkative, lambda *_: [Text("picture")])
    talkative.speak = lambda: screen.show("in the midst")
    screen.open()
    screen.tick()
    screen.close()
    assert seen(talkative).text == "in the midst\npicture"


def test_colours_of_what_is_written_stay_and_nothing_else_does(stream, monkeypatch):
    """Users may colour what they print; a picture stands below it, and must not be moved."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    screen = screen_on(stream, lambda *_: [Text("picture")])
    screen.open()
    screen.show("\x1b[31mred\x1b[0m \x1b[5A[bold] :smile:")
    screen.close()
    assert "\x1b[31mred\x1b[0m [bold] :smile:" in stream.getvalue().replace("\x1b[0m\x1b", "\x1b")
    assert "\x1b[5A" not in stream.getvalue()


def test_a_screen_that_cannot_be_opened_leaves_the_terminal_in_order(stream):
    """Such as where no more threads can be had, or an interrupt comes just then."""
    screen = screen_on(stream, lambda *_: None)
    screen._ticker.start = lambda: 1 / 0
    with pytest.raises(ZeroDivisionError):
        screen.open()
    assert seen(stream).cursor_is_shown
