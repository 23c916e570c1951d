// The timeline: one lane for the model, and one for each tool call that ran in parallel. Only the visible part is drawn.

const SVG = "http://www.w3.org/2000/svg";
const LANE = 19;
const BAR = 14;
const AXIS = 18;
const GUTTER = 52;

function svg(tag, facts, className) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(facts)) made.setAttribute(name, String(value));
  if (className) made.setAttribute("class", className);
  return made;
}

// The parts of a bar: failed attempts, the waits after them, and the last attempt.
function tries(start, end, retries, kind) {
  const parts = [];
  let from = start;
  for (const retry of retries) {
    if (retry.at === null) continue;
    parts.push({ t: from, e: retry.at, kind: "fail" });
    from = Math.min(end, retry.at + retry.delay);
    parts.push({ t: retry.at, e: from, kind: "wait" });
  }
  parts.push({ t: from, e: end, kind });
  return parts;
}

function partsOf(step, end) {
  const start = step.q ?? step.t;
  if (start === null) return [];
  const until = step.a ?? step.f ?? end;
  const kind = step.failed ? "fail" : step.a === null ? "model open" : "model";
  const parts = tries(start, until, step.retries, kind);
  const last = parts[parts.length - 1];
  if (step.p !== null && step.p > last.t && step.p < last.e) {
    parts.splice(-1, 1, { t: last.t, e: step.p, kind: "first" }, { ...last, t: step.p });
  }
  return parts;
}

// Assign bars to the smallest number of lanes in which they do not overlap.
function inLanes(bars) {
  const ends = [];
  bars.sort((one, other) => one.t - other.t);
  for (const bar of bars) {
    let lane = ends.findIndex((end) => end <= bar.t + 1e-9);
    if (lane < 0) lane = ends.length;
    ends[lane] = bar.e;
    bar.lane = lane + 1;
  }
  return ends.length;
}

class Timeline {
  constructor(run, nodes, onChoose) {
    this.start = run.t ?? 0;
    this.end = Math.max(run.e ?? 0, this.start + 1e-6);
    this.onChoose = onChoose;
    this.#collect(run, nodes);
    this.view = [this.start, this.end];
    this.svg = svg("svg", { role: "img", "aria-label": "Timeline of model calls and tool calls; the list below has the same content" });
    this.svg.tabIndex = -1;
    this.element = el("div", "chart", this.svg);
    this.#listen();
    this.sizes = new ResizeObserver(() => this.draw());
    this.sizes.observe(this.element);
  }

  leave() {
    this.sizes.disconnect();
    this.left.abort();
  }

  #collect(run, nodes) {
    const calls = [];
    this.lanes = [[]];
    run.steps.forEach((step, at) => {
      const parts = partsOf(step, this.end);
      if (parts.length) {
        const name = `iteration ${step.n}: the model`;
        this.lanes[0].push({ t: parts[0].t, e: parts[parts.length - 1].e, parts, name, node: () => nodes[at], step: at });
      }
      step.rows.forEach((row, place) => {
        if (row.k !== "call" || row.t === null) return;
        const isOpen = row.e === null;
        const end = row.e ?? this.end;
        const kind = row.error ? "fail" : isOpen ? "tool open" : "tool";
        const inner = row.runs.flatMap((child) => child.steps.flatMap((one) => partsOf(one, end)));
        const parts = tries(row.t, end, row.retries, kind);
        calls.push({ t: row.t, e: end, parts, inner, name: row.name, node: () => kidsOf(nodes[at])[place], step: at });
      });
    });
    const count = inLanes(calls);
    for (let lane = 1; lane <= count; lane++) this.lanes.push([]);
    for (const bar of calls) this.lanes[bar.lane].push(bar);
    this.starts = run.steps.filter((step) => step.t !== null).map((step) => [step.t, step.n]);
  }

  get width() {
    return Math.max(this.element.clientWidth - GUTTER, 50);
  }

  #x(at) {
    return GUTTER + ((at - this.view[0]) / (this.view[1] - this.view[0])) * this.width;
  }

  draw() {
    const height = AXIS + this.lanes.length * LANE + 2;
    const full = this.element.clientWidth;
    if (!full) return;
    this.drawn = [];
    this.svg.setAttribute("viewBox", `0 0 ${full} ${height}`);
    this.svg.style.height = `${height}px`;
    const clip = svg("clipPath", { id: "lanes" });
    clip.append(svg("rect", { x: GUTTER, y: 0, width: this.width, height }));
    const inside = svg("g", { "clip-path": "url(#lanes)" });
    const names = svg("g", {});
    this.#axis(inside, height);
    this.#cursor(inside, height);
    this.lanes.forEach((bars, lane) => {
      const y = AXIS + lane * LANE + (LANE - BAR) / 2;
      if (lane < 2) names.append(this.#text(0, y + 11, lane ? "tools" : "model"));
      this.#lane(inside, bars, y);
    });
    this.svg.replaceChildren(clip, inside, names);
  }

  #text(x, y, text) {
    const made = svg("text", { x, y });
    made.textContent = text;
    return made;
  }

  #axis(into, height) {
    const span = this.view[1] - this.view[0];
    const rough = span / Math.max(2, Math.floor(this.width / 110));
    const power = 10 ** Math.floor(Math.log10(rough));
    const tick = power * ([1, 2, 5, 10].find((one) => one * power >= rough) ?? 10);
    for (let at = Math.ceil(this.view[0] / tick) * tick; at <= this.view[1]; at += tick) {
      const x = Math.round(this.#x(at)) + 0.5;
      into.append(svg("line", { x1: x, x2: x, y1: AXIS - 3, y2: height }, "grid"));
      const name = Math.abs(at) < tick / 2 ? "0 s" : seconds(at).replace(/(\.\d*?)0+ /, "$1 ").replace(". ", " ");
      into.append(this.#text(x + 3, 10, name));
    }
  }

  #cursor(into, height) {
    const step = this.chosen;
    if (!step || step.t === null) return;
    const x = this.#x(step.t);
    const width = Math.max(this.#x(step.e ?? step.a ?? this.end) - x, 2);
    into.append(svg("rect", { x, y: AXIS - 3, width, height: height - AXIS + 3 }, "cursor"));
  }

  // Draw the bars of a lane. Bars on the same pixel are drawn once.
  #lane(into, bars, y) {
    let last = -1;
    let low = 0;
    let high = bars.length;
    while (low < high) { // in a lane, what starts later ends later
      const middle = (low + high) >> 1;
      if (bars[middle].e < this.view[0]) low = middle + 1;
      else high = middle;
    }
    for (let at = low; at < bars.length && bars[at].t <= this.view[1]; at++) {
      const bar = bars[at];
      const x = this.#x(bar.t);
      const end = Math.max(this.#x(bar.e), x + 1.2);
      const isTrouble = bar.parts.some((part) => part.kind === "fail" || part.kind === "wait");
      if (end < last + 0.8 && !isTrouble) continue;
      last = end;
      this.#bar(into, bar, x, end, y);
    }
  }

  #bar(into, bar, x, end, y) {
    const group = svg("g", { "data-at": this.drawn.push(bar) - 1 });
    for (const part of bar.parts) this.#part(group, part, y, BAR, end - x < 4);
    for (const part of bar.inner ?? []) {
      if (end - x > 8) this.#part(group, part, y + BAR - 5, 4, false);
    }
    const room = Math.floor((Math.min(end, GUTTER + this.width) - Math.max(x, GUTTER) - 10) / 6.4);
    if (bar.inner && room > 3) {
      const text = this.#text(Math.max(x, GUTTER) + 5, y + 10.5, flat(bar.name, room - 1));
      text.style.fill = "var(--ground)";
      text.style.pointerEvents = "none";
      group.append(text);
    }
    const title = svg("title", {});
    title.textContent = `${flat(bar.name, 100)}, ${seconds(bar.e - bar.t)}`;
    group.append(title);
    into.append(group);
  }

  #part(into, part, y, height, isSmall) {
    const x = this.#x(part.t);
    const width = Math.max(this.#x(part.e) - x - (isSmall ? 0 : 0.6), 1.2);
    into.append(svg("rect", { x, y, width, height, rx: width > 4 ? 2 : 0 }, part.kind));
  }

  // Highlight the active step of the list, and scroll to it if it is not visible.
  choose(node) {
    let around = node;
    while (around.parent) around = around.parent;
    this.chosen = around.kind === "iteration" ? around.data : null;
    const at = this.chosen?.t;
    const [from, to] = this.view;
    if (at !== null && at !== undefined && (at < from || at > to)) this.#pan(at - from - (to - from) * 0.3);
    else this.later();
  }

  later() {
    if (this.waiting) return;
    this.waiting = requestAnimationFrame(() => {
      this.waiting = 0;
      this.draw();
    });
  }

  left = new AbortController();
  drawn = [];
  chosen = null;
  waiting = 0;

  zoom(by, at = (this.view[0] + this.view[1]) / 2) {
    const least = Math.max((this.end - this.start) / 1e5, 1e-5);
    const span = Math.min(Math.max((this.view[1] - this.view[0]) * by, least), this.end - this.start);
    const share = (at - this.view[0]) / (this.view[1] - this.view[0]);
    this.view = [at - span * share, at + span * (1 - share)];
    this.#pan(0);
  }

  fit() {
    this.view = [this.start, this.end];
    this.later();
  }

  #pan(by) {
    const span = this.view[1] - this.view[0];
    const from = Math.min(Math.max(this.view[0] + by, this.start), this.end - span);
    this.view = [from, from + span];
    this.later();
  }

  #when(event) {
    const x = event.clientX - this.svg.getBoundingClientRect().left - GUTTER;
    return this.view[0] + (x / this.width) * (this.view[1] - this.view[0]);
  }

  #listen() {
    let drag = null;
    this.svg.addEventListener("wheel", (event) => {
      const isAside = event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY);
      if (!event.ctrlKey && !event.metaKey && !isAside) return;
      event.preventDefault();
      const by = event.deltaX || event.deltaY;
      if (isAside) this.#pan((by / this.width) * (this.view[1] - this.view[0]));
      else this.zoom(event.deltaY > 0 ? 1.25 : 0.8, this.#when(event));
    }, { passive: false });
    this.svg.addEventListener("pointerdown", (event) => {
      drag = { x: event.clientX, from: event.clientX, target: event.target };
    });
    window.addEventListener("pointermove", (event) => {
      if (!drag) return;
      const by = drag.x - event.clientX;
      drag.x = event.clientX;
      if (Math.abs(event.clientX - drag.from) > 3) this.svg.classList.add("held");
      this.#pan((by / this.width) * (this.view[1] - this.view[0]));
    }, { signal: this.left.signal });
    window.addEventListener("pointerup", (event) => {
      if (drag && Math.abs(event.clientX - drag.from) <= 3) {
        const group = drag.target.closest?.("g[data-at]");
        if (group) this.onChoose(this.drawn[Number(group.dataset.at)]?.node());
      }
      drag = null;
      this.svg.classList.remove("held");
    }, { signal: this.left.signal });
  }
}
