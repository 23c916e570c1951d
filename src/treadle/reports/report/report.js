// The page: the selected run, keyboard shortcuts, search.

const KEYS = [
  ["j, ↓ / k, ↑", "next step, previous step"],
  ["Enter, Space", "expand or collapse"],
  ["→ / ←", "expand or go to the first child, collapse or go to the parent"],
  ["Home / End", "first step, last step"],
  ["e / c", "expand all iterations, collapse everything"],
  ["g / G", "next or previous problem: an error, a retry, a guard"],
  ["/", "search"],
  ["n / N", "next or previous match"],
  ["d", "the first difference, in the one run and the other"],
  ["+ / - / 0", "zoom in, zoom out, show the whole timeline"],
  ["t", "light or dark theme"],
  ["?", "show this help"],
];

const data = JSON.parse(document.getElementById("data").textContent);
const page = document.getElementById("page");
const words = document.getElementById("words");
const found = document.getElementById("found");
const help = document.getElementById("help");
let view = null;

function figure(value, name, small, go) {
  const label = go ? el("button", "", name) : el("span", "", name);
  if (go) {
    label.type = "button";
    label.addEventListener("click", go);
  }
  return el("li", "fig", el("b", "num", value, small ? el("small", "", ` ${small}`) : ""), label);
}

// How the counts are to be read: a lower bound, or an estimate.
function bound(usage) {
  return `${usage.least ? "≥ " : ""}${usage.about ? "≈ " : ""}`;
}

function figures(run) {
  const usage = run.usage;
  const most = run.limits;
  const list = el("ul", "figs");
  const tokens = (count) => (usage.least && !usage.total ? "–" : `${bound(usage)}${amount(count)}`);
  const of = (limit) => (limit === undefined ? "" : `of ${amount(limit)}`);
  const trouble = () => seek(isTrouble, 1);
  list.append(
    figure(amount(run.iterations), "iterations", of(most.max_iterations)),
    figure(amount(run.calls), "tool calls", of(most.max_tool_calls)),
    figure(seconds(run.duration) || "–", "total time", most.max_seconds ? `of ${seconds(most.max_seconds)}` : ""),
    figure(seconds(run.steps.reduce((sum, step) => sum + (step.m ?? 0), 0)) || "–", "in model calls"),
    figure(tokens(usage.in), usage.cached ? `tokens in, ${amount(usage.cached)} cached` : "tokens in"),
    figure(tokens(usage.out), usage.reasoning ? `tokens out, ${amount(usage.reasoning)} reasoning` : "tokens out"),
  );
  if (usage.cost !== null) list.append(figure(dollars(usage.cost), "cost", most.max_cost ? `of ${dollars(most.max_cost)}` : ""));
  if (run.guards) list.append(figure(amount(run.guards), run.guards === 1 ? "guard fired" : "guards fired", "", trouble));
  if (run.retries) list.append(figure(amount(run.retries), run.retries === 1 ? "retry" : "retries", "", trouble));
  return list;
}

function facts(run) {
  const list = el("dl", "facts");
  const add = (name, value) => value && list.append(el("div", "", el("dt", "", name), el("dd", "", gist(value, 300))));
  add("model", run.model);
  add("provider", run.provider);
  add("started", run.at === null ? "" : new Date(run.at * 1000).toLocaleString("sv-SE", { timeZoneName: "short" }));
  add("run", run.id);
  add("tools", run.tools.join(", "));
  add("limits", Object.entries(run.limits).map(([name, most]) => `${name} ${most}`).join(", "));
  add("request", run.request);
  return list;
}

// A comparison with another recording: the first difference, and that iteration of both runs.
function comparison(diff) {
  const made = el("section", "diff", el("h2", "", "Comparison"));
  if (!diff.sides.length) {
    made.append(el("p", "why", `No difference between ${diff.names[0]} and ${diff.names[1]}.`));
    return made;
  }
  const where = diff.iteration ? `iteration ${diff.iteration}` : "before the first iteration";
  const within = diff.within.map((name) => `, within ${flat(name, 80)}`).join("");
  const place = diff.path ? ` at ${flat(diff.path, 200)}` : "";
  made.append(el("p", "first", `First difference: ${where}${within}: ${flat(diff.what, 200)}${place}`));
  made.append(el("div", "sides", ...diff.sides.map(sideOf)));
  for (const change of diff.changes) made.append(el("p", "change", "Changed: ", shown(change)));
  return made;
}

function sideOf(side) {
  const [before, inside, after] = side.value;
  const value = before || inside || after
    ? el("pre", "", shown(before), el("mark", "", shown(inside)), shown(after))
    : el("p", "faint", "(nothing)");
  const made = el("section", "side", el("h3", "", gist(side.name, 200)), value);
  if (side.run === null) return made;
  const go = button("go to it", `Go to the difference in ${flat(side.name, 200)} (d)`, () => show(side.run, true));
  made.append(el("p", "faint", `${data.runs[side.run].headline} · `, go));
  return made;
}

// Go to the first difference in the other run.
function turnSide() {
  const runs = (data.diff?.sides ?? []).map((side) => side.run).filter((run) => run !== null);
  const other = runs.find((run) => run !== view.at) ?? runs[0];
  if (other !== undefined) show(other, true);
}

// The node of the first difference in the run that is shown.
function differing(nodes) {
  let node = nodes.find((one) => one.kind === "iteration" && one.data.n === data.diff.iteration) ?? nodes[nodes.length - 1];
  for (const name of data.diff.within) {
    const call = kidsOf(node).find((one) => one.kind === "call" && one.data.name === name);
    const run = call && kidsOf(call)[kidsOf(call).length - 1];
    if (!run) break;
    node = kidsOf(run).find((one) => one.kind === "iteration" && one.data.n === data.diff.iteration) ?? run;
  }
  return node;
}

function summary(run) {
  const made = el("section", "summary");
  const kind = run.status === "did not end" ? "cut" : run.status;
  made.append(
    el("h1", "", gist(run.agent || "Unnamed run", 200)),
    el("p", `verdict ${kind}`, run.headline),
    run.why ? el("p", "why", shown(run.why)) : "",
    run.trace ? folded("traceback", run.trace) : "",
    figures(run),
    facts(run),
  );
  const output = run.output === null ? run.answer : pretty(run.output);
  if (output) made.append(el("section", "said", el("h2", "", run.output === null ? "Answer" : "Output"), block(output, { prose: true })));
  const notes = [...data.problems, ...run.repairs.map((one) => `Repaired in the input messages: ${one}`)];
  if (notes.length) made.append(el("div", "notes", ...notes.map((one) => el("p", "", shown(one)))));
  return made;
}

function legend(run) {
  const has = (test) => run.steps.some(test);
  const calls = run.steps.flatMap((step) => step.rows.filter((row) => row.k === "call"));
  const kinds = [["model", "model"], ["tool", "tool"]];
  if (has((step) => step.p !== null)) kinds.splice(1, 0, ["first", "time to first chunk"]);
  if (run.retries) kinds.push(["wait", "waiting to retry"]);
  if (run.retries || has((step) => step.failed) || calls.some((call) => call.error)) kinds.push(["fail", "failed"]);
  const made = el("span", "legend");
  for (const [kind, name] of kinds) made.append(el("span", "", el("i", kind), name));
  return made;
}

function button(text, label, act) {
  const made = el("button", "", text);
  made.type = "button";
  made.title = label;
  made.setAttribute("aria-label", label);
  made.addEventListener("click", act);
  return made;
}

function show(at, goes = false) {
  view?.list.leave();
  view?.time.leave();
  const run = data.runs[at];
  const nodes = nodesOf(run, null);
  if (run.steps.length <= 12) for (const node of nodes) node.open = node.kind === "iteration";
  const time = new Timeline(run, nodes, (node) => node && view.list.choose(node));
  const list = new List(nodes, { onActive: (node) => time.choose(node) });
  view = { run, list, time, at };
  const isSide = data.diff?.sides.some((side) => side.run === at);
  const place = isSide ? differing(nodes) : null;
  if (place) place.differs = place.open = true;
  const zoom = el("span", "zoom", button("−", "Zoom out (-)", () => time.zoom(1.6)),
    button("+", "Zoom in (+)", () => time.zoom(1 / 1.6)), button("all", "Show the whole timeline (0)", () => time.fit()));
  const chart = el("section", "time", el("header", "", el("h2", "", "Timeline"), legend(run), zoom), time.element);
  const columns = el("div", "cols", "", ...["", "", "step", "tokens", "cost", "time"].map((name) => el("span", "", name)));
  columns.setAttribute("aria-hidden", "true");
  const hasCost = run.usage.cost !== null;
  const steps = el("section", hasCost ? "steps" : "steps nocost", columns, list.element);
  page.replaceChildren(...(data.diff ? [comparison(data.diff)] : []), summary(run), chart, steps);
  if (!hasCost) columns.children[4].textContent = "";
  time.later();
  list.render();
  document.title = `${flat(run.agent || "run", 60)}: ${run.headline}`;
  document.getElementById("run").value = String(at);
  if (place && goes) list.choose(place);
}

function seek(test, by) {
  const node = view.list.seek(test, by);
  if (node) view.list.choose(node);
  return node;
}

// Whether a node's own text matches the search.
function isFound(node) {
  return wordsOf(node).toLowerCase().includes(view.list.words);
}

function find(by) {
  const wanted = words.value.toLowerCase();
  if (wanted !== view.list.words) {
    view.list.refresh(wanted);
    view.matches = null;
  }
  if (!wanted) {
    found.textContent = "";
    return;
  }
  const node = view.list.seek(isFound, by);
  if (!node) {
    found.textContent = "not found";
    return;
  }
  if (!isLeaf(node) && node.kind !== "iteration") {
    node.open = true;
    node.height = 0;
    view.list.stale = true;
  }
  view.list.choose(node);
  view.list.refresh(wanted);
  view.list.choose(node);
  if (view.matches === null) view.matches = allOf(view.list.nodes).filter(isFound);
  found.textContent = `${amount(view.matches.indexOf(node) + 1)} of ${amount(view.matches.length)}`;
}

function allOf(nodes) {
  return nodes.flatMap((node) => [node, ...allOf(kidsOf(node))]);
}

function turnTheme() {
  const root = document.documentElement;
  const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = isDark ? "light" : "dark";
}

function goIn() {
  const node = view.list.active;
  if (!node.open) view.list.toggle(node, true);
  else if (kidsOf(node).length) view.list.choose(kidsOf(node)[0]);
}

function goOut() {
  const node = view.list.active;
  if (node.open) view.list.toggle(node, false);
  else if (node.parent) view.list.choose(node.parent);
}

const SHORTCUTS = {
  j: () => view.list.step(1),
  k: () => view.list.step(-1),
  ArrowDown: () => view.list.step(1),
  ArrowUp: () => view.list.step(-1),
  ArrowRight: goIn,
  ArrowLeft: goOut,
  Enter: () => view.list.toggle(view.list.active),
  " ": () => view.list.toggle(view.list.active),
  Home: () => view.list.choose(view.list.visible[0]),
  End: () => view.list.choose(view.list.visible[view.list.visible.length - 1]),
  e: () => view.list.unfold(true),
  c: () => view.list.unfold(false),
  g: () => seek(isTrouble, 1),
  G: () => seek(isTrouble, -1),
  d: turnSide,
  n: () => find(1),
  N: () => find(-1),
  "+": () => view.time.zoom(1 / 1.6),
  "=": () => view.time.zoom(1 / 1.6),
  "-": () => view.time.zoom(1.6),
  0: () => view.time.fit(),
  t: turnTheme,
  "?": () => help.showModal(),
  "/": () => { words.focus(); words.select(); },
};
const NOT_FOCUSING = new Set(["t", "?", "/", "+", "=", "-", "0"]);
const OF_BUTTONS = new Set(["Enter", " "]);

function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || help.open) return;
  const target = event.target;
  if (target.closest("input, select, textarea")) {
    if (event.key === "Escape") {
      event.preventDefault(); // the browser would empty the field
      target.blur();
    }
    return;
  }
  if (OF_BUTTONS.has(event.key) && target.closest("button, a, summary")) return;
  const act = SHORTCUTS[event.key];
  if (!act) return;
  event.preventDefault();
  act();
  if (!NOT_FOCUSING.has(event.key)) view.list.element.focus({ preventScroll: true });
}

function begin() {
  const choice = document.getElementById("run");
  data.runs.forEach((run, at) => {
    const count = data.diff?.count ?? data.runs.length;
    const of = data.diff ? `${data.diff.names[at < count ? 0 : 1]} ` : "";
    const place = at < count ? at + 1 : at + 1 - count;
    const option = el("option", "", flat(`${of}${place}. ${run.agent || "run"}: ${run.headline}`, 80));
    option.value = String(at);
    choice.append(option);
  });
  choice.closest("label").hidden = data.runs.length < 2;
  choice.addEventListener("change", () => show(Number(choice.value)));
  const keys = el("dl", "");
  for (const [key, does] of KEYS) keys.append(el("dt", "", el("kbd", "", key)), el("dd", "", does));
  help.append(el("h2", "", "Keyboard shortcuts"), keys);
  help.addEventListener("click", (event) => event.target === help && help.close());
  document.getElementById("theme").addEventListener("click", turnTheme);
  document.getElementById("keys").addEventListener("click", () => help.showModal());
  document.getElementById("find").addEventListener("submit", (event) => {
    event.preventDefault();
    find(1);
  });
  words.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && event.shiftKey) {
      event.preventDefault();
      find(-1);
    }
  });
  words.addEventListener("search", () => words.value === "" && find(1));
  document.addEventListener("keydown", pressed);
  if (data.runs.length) show(0);
  else page.append(el("p", "verdict", "No runs"), el("p", "why", data.problems.join("\n")));
}

begin();
