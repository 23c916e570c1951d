// What graphs have in common: their frame, their axes, and the readout at a point in time.

const HEIGHT = 172;
const EDGE = { left: 48, right: 10, top: 10, bottom: 22 };
const plots = new Set();
// The position of the cursor: a panel and a point of its graph. It stays when the data changes.
let cursor = null;
const panelOf = (root) => root.closest("article").id;
const watcher = new ResizeObserver((entries) => {
  for (const { target } of entries) if (target.redraw) target.redraw();
});

// A graph that draws itself as wide as there is room. `paint(svg, area)` draws; `readoutOf(place)` returns what it shows at a point.
function plot(label, frame, paint, readoutOf) {
  const svg = draw("svg", { class: "graph", width: "100%", height: HEIGHT, "aria-hidden": "true" });
  const readout = make("div", { class: "readout", hidden: true, "aria-live": "polite" });
  const root = make("div", { class: "plot", tabindex: "0", role: "group", "aria-label": label }, svg, readout);
  const line = draw("line", { class: "cross", visibility: "hidden" });
  let area = null;

  root.redraw = () => {
    const width = Math.floor(root.clientWidth);
    if (!width || (area && area.width === width)) return;
    area = areaOf(width, frame);
    svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    svg.setAttribute("width", width);
    svg.replaceChildren();
    timeAxis(svg, area, frame);
    paint(svg, area);
    fill(line, { y1: area.top, y2: area.bottom }, []);
    svg.append(line);
    if (cursor && cursor.panel === panelOf(root)) root.read(cursor.place);
  };
  root.mark = (place) => {
    if (!area || place === null) {
      line.setAttribute("visibility", "hidden");
      return;
    }
    const x = area.middle(place).toFixed(1);
    fill(line, { x1: x, x2: x, visibility: "visible" }, []);
  };
  root.showReadout = (place) => {
    readout.hidden = place === null;
    if (place === null) return;
    readout.replaceChildren(...readoutOf(place));
    const x = area.middle(place);
    const room = readout.offsetWidth + 14;
    readout.style.left = `${x + room < area.width ? x + 12 : Math.max(0, x - room)}px`;
  };
  listen(root, () => area, frame);
  plots.add(root);
  watcher.observe(root);
  return root;
}

function areaOf(width, frame) {
  const left = EDGE.left;
  const right = width - EDGE.right;
  const part = (right - left) / frame.count;
  return {
    width,
    left,
    right,
    part,
    top: EDGE.top,
    bottom: HEIGHT - EDGE.bottom,
    middle: (place) => left + (place + 0.5) * part,
    placeAt: (x) => Math.min(frame.count - 1, Math.max(0, Math.floor((x - left) / part))),
    atTime: (at) => left + ((at - frame.start) / (frame.step * frame.count)) * (right - left),
  };
}

function listen(root, area, frame) {
  const go = (to) => {
    cursor = to === null ? null : { panel: panelOf(root), place: to };
    for (const one of plots) one.mark(to);
    root.showReadout(to);
  };
  root.read = go;
  root.addEventListener("pointermove", (event) => {
    if (area()) go(area().placeAt(event.clientX - root.getBoundingClientRect().left));
  });
  root.addEventListener("pointerleave", () => go(null));
  root.addEventListener("blur", () => go(null));
  root.addEventListener("keydown", (event) => {
    const moves = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -1e6, End: 1e6 };
    if (event.key === "Escape") go(null);
    if (!area() || moves[event.key] === undefined) return;
    event.preventDefault();
    const from = cursor && cursor.panel === panelOf(root) ? cursor.place : frame.count;
    go(Math.min(frame.count - 1, Math.max(0, from + moves[event.key])));
  });
}

function timeAxis(svg, area, frame) {
  const end = frame.start + frame.step * frame.count;
  const { step, at } = timeTicks(frame.start, end, Math.max(2, Math.floor((area.right - area.left) / 84)));
  for (const one of at) {
    const x = area.atTime(one);
    if (x < area.left + 4 || x > area.right - 16) continue;
    svg.append(
      draw("line", { class: "tick", x1: x, x2: x, y1: area.bottom, y2: area.bottom + 4 }),
      draw("text", { class: "axis", x, y: HEIGHT - 4, "text-anchor": "middle" }, tickTime(one, step)),
    );
  }
}

// Horizontal lines at round numbers. Returns the function from a value to its position.
function valueAxis(svg, area, most, unit) {
  const marks = ticks(most, unit);
  const top = marks[marks.length - 1];
  const y = (value) => area.bottom - (value / top) * (area.bottom - area.top);
  for (const mark of marks) {
    const at = Math.round(y(mark)) + 0.5;
    svg.append(
      draw("line", { class: mark === 0 ? "base" : "grid", x1: area.left, x2: area.right, y1: at, y2: at }),
      draw("text", { class: "axis", x: area.left - 8, y: at + 3.5, "text-anchor": "end" }, axisText(unit, mark)),
    );
  }
  return y;
}

// The unit is in the legend. An axis shows it only for dollars, seconds and shares.
function axisText(unit, value) {
  if (unit === "dollars") return `$${short(value)}`;
  return unit === "seconds" || unit === "ratio" ? format(unit, value) : short(value);
}

// The time of a point: the step before it.
const headline = (frame, place) =>
  make(
    "p",
    { class: "when" },
    `${timeOf(frame.start + frame.step * place, frame.step)} to ${timeOf(frame.start + frame.step * (place + 1), frame.step)}`,
  );
