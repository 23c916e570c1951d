// The selected range and agent, loading of their data, and the refresh timer.

const start = JSON.parse(find("start").textContent);
const isServed = start.data === null;
const kept = store();
const chosen = {
  range: start.range,
  agent: start.agent,
  refresh: 15,
  ...(isServed ? fromAddress() : {}),
};
let told = null;
let asking = null;
let timer = 0;

// A page from a file may not be allowed to store settings.
function store() {
  try {
    localStorage.getItem("treadle-theme");
    return localStorage;
  } catch {
    return { getItem: () => null, setItem: () => {}, removeItem: () => {} };
  }
}

function fromAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  const found = {};
  if (given.has("range")) found.range = given.get("range");
  if (given.has("agent")) found.agent = given.get("agent");
  if (given.has("refresh")) found.refresh = Number(given.get("refresh")) || 0;
  return found;
}

function intoAddress() {
  if (!isServed) return;
  const given = new URLSearchParams({ range: chosen.range, refresh: String(chosen.refresh) });
  if (chosen.agent !== null) given.set("agent", chosen.agent);
  history.replaceState(null, "", `#${given}`);
}

async function load() {
  clearTimeout(timer);
  if (asking) asking.abort();
  const mine = new AbortController();
  asking = mine;
  document.body.classList.add("asking");
  try {
    const found = isServed ? await fetched(mine.signal) : fromFile();
    if (mine !== asking) return;
    told = found;
    show();
  } catch (error) {
    if (mine !== asking) return;
    trouble(error.message);
  } finally {
    if (mine === asking) {
      document.body.classList.remove("asking");
      again();
    }
  }
}

function again() {
  clearTimeout(timer);
  if (isServed && chosen.refresh && !document.hidden) timer = setTimeout(load, chosen.refresh * 1000);
}

async function fetched(signal) {
  const query = new URLSearchParams({ range: chosen.range });
  if (chosen.agent !== null) query.set("agent", chosen.agent);
  let answer;
  try {
    answer = await fetch(`data.json?${query}`, { signal });
  } catch {
    throw new Error("treadle dashboard does not respond. Is it still running?");
  }
  const found = await answer.json();
  if (found.error) throw new Error(found.error);
  return found;
}

function fromFile() {
  const found = start.data.find((one) => one.range === chosen.range && one.agent === chosen.agent);
  if (!found) throw new Error("This file does not contain data for this range and agent.");
  return found;
}

function trouble(message) {
  const box = find("trouble");
  const old = told ? ` The data below is from ${timeOf(told.now, 1)}.` : "";
  const next = isServed && chosen.refresh ? " Retrying." : "";
  box.replaceChildren(make("strong", null, told ? "No new data. " : "No data. "), `${sentence(message)}${old}${next}`);
  box.hidden = false;
  document.body.classList.toggle("stale", told !== null);
  find("status").textContent = "";
}

const sentence = (text) => (/[.!?]$/.test(text) ? text : `${text}.`);

function show() {
  find("trouble").hidden = true;
  document.body.classList.remove("stale");
  find("source").textContent = told.source;
  controls();
  const isEmpty = !panelsOf(told).some((panel) => panel.series.some(isSomething)) && !panelsOf(told).some((panel) => panel.error);
  nothing(isEmpty);
  plots.clear();
  watcher.disconnect();
  const focused = focusPath();
  const before = reading;
  find("tiles").replaceChildren(...tiles(told));
  find("rows").replaceChildren(...(isEmpty ? [] : rows(told)));
  if (focused) refocus(focused);
  reading = before; // drawing has reset it
  const end = Math.min(told.now, told.start + told.step * told.count);
  const when = `${timeOf(told.start, told.step)} to ${timeOf(end, told.step)}`;
  find("status").textContent = isServed
    ? `${when}, as of ${timeOf(told.now, 1)}`
    : `${when}, written ${timeOf(told.now, 60)}`;
}

const isSomething = (series) => Boolean(series.whole) || (series.values || []).some((value) => value);

function nothing(isEmpty) {
  const box = find("nothing");
  box.hidden = !isEmpty;
  if (!isEmpty) return;
  const whose = chosen.agent === null ? "" : ` of ${chosen.agent || "unnamed agents"}`;
  box.replaceChildren(
    make("h2", null, `No runs${whose} in this range`),
    make("p", null, prose(told.hint)),
  );
}

// The focused element, so that new data does not move the focus.
function focusPath() {
  const active = document.activeElement;
  const panel = active && active.closest("article[id]");
  if (!panel || !find("main").contains(active)) return null;
  return { panel: panel.id, place: focusable(panel).indexOf(active) };
}

const focusable = (panel) => [...panel.querySelectorAll("button, [tabindex]")];

function refocus({ panel, place }) {
  const where = find(panel);
  const target = where && focusable(where)[place];
  if (target) target.focus({ preventScroll: true });
}

function controls() {
  const agents = told.agents.includes(chosen.agent) || chosen.agent === null ? told.agents : [...told.agents, chosen.agent];
  const options = [make("option", { value: "all" }, "All agents")];
  for (const name of agents) options.push(make("option", { value: `=${name}` }, name || "(unnamed)"));
  const select = find("agent");
  const before = [...select.options].map((one) => one.value + one.text).join("\n");
  if (before !== options.map((one) => one.value + one.text).join("\n")) select.replaceChildren(...options);
  select.value = chosen.agent === null ? "all" : `=${chosen.agent}`;
  find("agent-field").hidden = agents.length === 0;
  ranges(told.ranges);
}

function ranges(titles) {
  const box = find("ranges");
  const keys = Object.keys(titles);
  if (box.dataset.keys !== keys.join(" ")) {
    box.dataset.keys = keys.join(" ");
    const made = keys.map((key) => {
      const input = make("input", { type: "radio", name: "range", value: key, id: `range-${key}` });
      return [input, make("label", { for: `range-${key}` }, titles[key])];
    });
    box.replaceChildren(make("legend", null, "Range"), ...made.flat());
  }
  for (const input of box.querySelectorAll("input")) input.checked = input.value === chosen.range;
}

function themed() {
  const wanted = kept.getItem("treadle-theme");
  const dark = wanted ? wanted === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  find("theme").setAttribute("aria-pressed", String(dark));
}

function change(what) {
  Object.assign(chosen, what);
  intoAddress();
  load();
}

find("controls").addEventListener("submit", (event) => event.preventDefault());
find("ranges").addEventListener("change", (event) => change({ range: event.target.value }));
find("agent").addEventListener("change", (event) => {
  change({ agent: event.target.value === "all" ? null : event.target.value.slice(1) });
});
find("refresh").addEventListener("change", (event) => change({ refresh: Number(event.target.value) }));
find("now").addEventListener("click", () => load());
find("theme").addEventListener("click", () => {
  const dark = document.documentElement.dataset.theme !== "dark";
  kept.setItem("treadle-theme", dark ? "dark" : "light");
  themed();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", themed);
document.addEventListener("visibilitychange", () => {
  if (document.hidden) clearTimeout(timer);
  else if (chosen.refresh) load();
});
find("source").textContent = start.title;
themed();
ranges(start.ranges);
find("refresh").value = String(chosen.refresh);
if (find("refresh").selectedIndex < 0) find("refresh").value = String((chosen.refresh = 15));
for (const id of ["refresh-field", "now"]) find(id).hidden = !isServed;
load();
