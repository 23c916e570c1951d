// Elements. Text is only ever inserted as text nodes, never as markup.

const SVG = "http://www.w3.org/2000/svg";

// Invisible characters and marks of writing direction are shown as their code points.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g;
const numbered = (sign) => `[U+${sign.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}]`;
const visible = (text) => String(text).replace(HIDDEN, numbered);

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined) continue;
    element.append(child instanceof Node ? child : document.createTextNode(visible(child)));
  }
  return element;
}

const make = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const draw = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);
const find = (id) => document.getElementById(id);

// Text with `code` in backticks.
function prose(text) {
  return text.split("`").map((part, place) => (place % 2 ? make("code", null, part) : part));
}

// The colour of each series. A known name has the same colour in every panel.
const SLOTS = 8;
const slots = new Map(
  Object.entries({
    answered: 0,
    output: 2,
    finished: 5,
    max_iterations_reached: 1,
    budget_exhausted: 4,
    deadline_exceeded: 7,
    circuit_broken: 3,
    loop_detected: 6,
    input: 0,
    p50: 0,
    p95: 1,
  }),
);

// The colour classes of the series of one panel, all different.
function slotsOf(names) {
  const found = new Map();
  const taken = new Set();
  for (const name of names) {
    if (slots.has(name) && !taken.has(slots.get(name))) found.set(name, slots.get(name));
    taken.add(found.get(name));
  }
  for (const name of names) {
    if (found.has(name)) continue;
    const free = [...Array(SLOTS).keys()].find((slot) => !taken.has(slot));
    taken.add(free);
    found.set(name, free);
    if (!slots.has(name)) slots.set(name, free);
  }
  return names.map((name) => `slot-${found.get(name)}`);
}
