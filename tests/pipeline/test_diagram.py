"""Diagrams: a Mermaid flowchart with valid syntax, and an outline."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.pipeline import Pipeline, done, embed, goto, goto_point, stage, switch, tbd
from treadle.pipeline.streams import StreamPipeline, composer, dead_end, plug_with, replicated


def a(item):
    return item


def b(item):
    return item


def c(item):
    return item


def same(inner, original):
    return inner


NODE = re.compile(
    r"(n\d+)(?:"
    r"\(\[(in|out)\]\)"
    r'|\["(.*)"\]|\{"(.*)"\}|\(\("(.*)"\)\)|\[/"(.*)"/\]|\[\["(.*)"\]\]|>"(.*)"\])'
)
EDGE = re.compile(r'(n\d+) -->(?:\|"(.*)"\|)? (n\d+)')
BOX = re.compile(r'subgraph g\d+\["(.*)"\]')


def read(mermaid):
    """The nodes with their labels, the edges between labels, and the boxes, as Mermaid reads them."""
    head, *lines = mermaid.splitlines()
    assert head == "flowchart TD"
    labels, edges, boxes, open_boxes = {}, set(), {}, []
    for line in lines:
        assert line.startswith("    ")
        text = line.strip()
        if text == "end":
            open_boxes.pop()
        elif box := BOX.fullmatch(text):
            open_boxes.append(unescaped(box[1]))
            boxes[unescaped(box[1])] = []
        elif edge := EDGE.fullmatch(text):
            assert not open_boxes, "an edge in a box would pull its nodes into the box"
            edges.add((labels[edge[1]], unescaped(edge[2] or ""), labels[edge[3]]))
        else:
            node = NODE.fullmatch(text)
            assert node, text
            label = unescaped(next(group for group in node.groups()[1:] if group is not None))
            assert node[1] not in labels
            labels[node[1]] = label
            for box in open_boxes:
                boxes[box].append(label)
    assert not open_boxes
    return list(labels.values()), edges, boxes


def unescaped(label):
    return re.sub(r"#(\d+);", lambda found: chr(int(found[1])), label)


class TestMermaid:
    def test_a_line_of_stages_goes_from_in_to_out(self):
        nodes, edges, boxes = read(Pipeline(a, b, tbd("later")).diagram())
        assert nodes == ["in", "a", "b", "later (to be done)", "out"]
        assert edges == {
            ("in", "", "a"),
            ("a", "", "b"),
            ("b", "", "later (to be done)"),
            ("later (to be done)", "", "out"),
        }
        assert boxes == {}

    def test_an_empty_pipeline_has_an_edge(self):
        assert read(Pipeline().diagram())[1] == {("in", "", "out")}

    def test_a_switch_has_an_edge_for_each_branch(self):
        pipeline = StreamPipeline(
            switch(len, {"x": a, 2: [b, dead_end("stop")], None: []}, name="kind"), c
        )
        assert read(pipeline.diagram())[1] == {
            ("in", "", "kind"),
            ("kind", "x", "a"),
            ("a", "", "c"),
            ("kind", "2", "b"),
            ("b", "", "stop"),
            ("kind", "None", "c"),
            ("c", "", "out"),
        }

    def test_a_goto_has_an_edge_to_its_point_and_a_done_to_the_end(self):
        pipeline = StreamPipeline(
            goto_point("start"), a, done(bool), goto("start", bool), composer(same, name="many")
        )
        assert read(pipeline.diagram())[1] == {
            ("in", "", "start"),
            ("start", "", "a"),
            ("a", "", "done"),
            ("done", "yes", "out"),
            ("done", "no", "goto start"),
            ("goto start", "yes", "start"),
            ("goto start", "no", "many"),
            ("many", "", "out"),
        }

    def test_embedded_and_plugged_parts_are_boxes(self):
        inner = Pipeline(goto_point("p"), stage(b, "x"), done(bool), goto("p", bool, name="back"))
        pipeline = StreamPipeline(
            a, embed(inner, "part"), plug_with((str, same), stage(b, "y"), name="plug"), c
        )
        _, edges, boxes = read(pipeline.diagram())
        assert boxes == {"part": ["p", "x", "done", "back"], "plug (plugged)": ["y"]}
        assert ("a", "", "p") in edges
        assert ("done", "yes", "y") in edges
        assert ("back", "no", "y") in edges
        assert ("y", "", "c") in edges

    def test_points_with_the_same_name_in_several_parts_are_different_nodes(self):
        inner = Pipeline(goto_point("p"), stage(b, "x"), goto("p", bool, name="inner back"))
        pipeline = Pipeline(
            goto_point("p"), a, embed(inner, "part"), goto("p", bool, name="outer back")
        )
        lines = pipeline.diagram().splitlines()
        points = [line.split("((")[0].strip() for line in lines if "((" in line]
        backs = [line.split("{")[0].strip() for line in lines if "back" in line]
        jumps = [tuple(EDGE.fullmatch(line.strip()).group(1, 3)) for line in lines if "yes" in line]
        assert sorted(jumps) == sorted([(backs[0], points[1]), (backs[1], points[0])])

    @given(st.text(min_size=1).filter(lambda name: name not in {"s", "b", "c"}))
    def test_a_name_can_be_any_text(self, name):
        pipeline = Pipeline(
            stage(a, name), switch(bool, {name: [], 1: b}, "s"), embed(Pipeline(c), f"{name}2")
        )
        nodes, edges, boxes = read(pipeline.diagram())
        assert nodes[1] == name
        assert ("s", name, "c") in edges
        assert list(boxes) == [f"{name}2"]

    @pytest.mark.parametrize("name", ['a"]; end', "<b>&amp;</b>", "`x`", "#quot;", "a|b", "x\ny"])
    def test_special_characters_in_a_name_are_escaped(self, name):
        line = Pipeline(stage(a, name)).diagram().splitlines()[2].strip()
        label = line.removeprefix('n2["').removesuffix('"]')
        assert not re.search(r'["<>&`|\n\[\]{}]', label)
        assert unescaped(label) == name


def test_the_outline_has_a_line_for_each_component():
    pipeline = StreamPipeline(
        goto_point("start"),
        replicated(a, 3),
        switch(len, {"x": [b, dead_end()], 2: []}, name="kind"),
        composer(same, name="many"),
        done(bool),
        done(bool, name="early"),
        goto("start", bool),
        goto("start", bool, name="again"),
        plug_with((str, same), stage(c, "x"), name="plug"),
        embed(Pipeline(c), "part"),
        dead_end(name="stop"),
        tbd("later"),
    )
    assert pipeline.diagram("text") == (
        "goto_point start\n"
        "a (x3)\n"
        "switch kind\n"
        "  x:\n"
        "    b\n"
        "    dead_end\n"
        "  2:\n"
        "composer many\n"
        "done\n"
        "done early\n"
        "goto start\n"
        "goto start if again\n"
        "plug_with plug\n"
        "  x\n"
        "embed part\n"
        "  c\n"
        "dead_end stop\n"
        "later (to be done)\n"
    )


def test_a_name_with_line_breaks_stays_on_its_line():
    assert Pipeline(stage(a, "x\ny")).diagram("text") == "'x\\ny'\n"


def test_an_unknown_kind_of_diagram_is_an_error():
    with pytest.raises(ValueError, match="'mermaid' or 'text', not 'svg'"):
        Pipeline().diagram("svg")
