// The selected range and agent, loading of their data, and the refresh timer.

const start = JSON.parse(find("start").textContent);
const isServed = start.data === null;
const settings = storage();
const chosen = {
  range: start.range,
  agent: start.agent,
  refresh: 15,
  ...(isServed ? readAddress() : {}),
};
let data = null;
let request = null;
let timer = 0;

// A page from a file may not be allowed to store settings.
function storage() {
  try {
    localStorage.getItem("treadle-theme");
    return localStorage;
  } catch {
    return { getItem: () => null, setItem: () => {}, removeItem: () => {} };
  }
}

function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  const found = {};
  if (given.has("range")) found.range = given.get("range");
  if (given.has("agent")) found.agent = given.get("agent");
  if (given.has("refresh")) found.refresh = Number(given.get("refresh")) || 0;
  return found;
}

function writeAddress() {
  if (!isServed) return;
  const given = new URLSearchParams({ range: chosen.range, refresh: String(chosen.refresh) });
  if (chosen.agent !== null) given.set("agent", chosen.agent);
  history.replaceState(null, "", `#${given}`);
}

async function load() {
  clearTimeout(timer);
  if (request) request.abort();
  const own = new AbortController();
  request = own;
  document.body.classList.add("asking");
  try {
    const found = isServed ? await fetchData(own.signal) : dataOfFile();
    if (own !== request) return;
    data = found;
    show();
  } catch (error) {
    if (own !== request) return;
    showError(error.message);
  } finally {
    if (own === request) {
      document.body.classList.remove("asking");
      scheduleRefresh();
    }
  }
}

function scheduleRefresh() {
  clearTimeout(timer);
  if (isServed && chosen.refresh && !document.hidden) timer = setTimeout(load, chosen.refresh * 1000);
}

async function fetchData(signal) {
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

function dataOfFile() {
  const found = start.data.find((one) => one.range === chosen.range && one.agent === chosen.agent);
  if (!found) throw new Error("This file does not contain data for this range and agent.");
  return found;
}

function showError(message) {
  const box = find("trouble");
  const old = data ? ` The data below is from ${timeOf(data.now, 1)}.` : "";
  const next = isServed && chosen.refresh ? " Retrying." : "";
  box.replaceChildren(make("strong", null, data ? "No new data. " : "No data. "), `${sentence(message)}${old}${next}`);
  box.hidden = false;
  document.body.classList.toggle("stale", data !== null);
  find("status").textContent = "";
}

const sentence = (text) => (/[.!?]$/.test(text) ? text : `${text}.`);

function show() {
  find("trouble").hidden = true;
  document.body.classList.remove("stale");
  find("source").textContent = data.source;
  controls();
  const isEmpty = !panelsOf(data).some((panel) => panel.series.some(isSomething)) && !panelsOf(data).some((panel) => panel.error);
  showEmpty(isEmpty);
  plots.clear();
  watcher.disconnect();
  const focused = focusPath();
  const before = cursor;
  find("tiles").replaceChildren(...tiles(data));
  find("rows").replaceChildren(...(isEmpty ? [] : rows(data)));
  if (focused) refocus(focused);
  cursor = before; // drawing has reset it
  const end = Math.min(data.now, data.start + data.step * data.count);
  const when = `${timeOf(data.start, data.step)} to ${timeOf(end, data.step)}`;
  find("status").textContent = isServed
    ? `${when}, as of ${timeOf(data.now, 1)}`
    : `${when}, written ${timeOf(data.now, 60)}`;
}

const isSomething = (series) => Boolean(series.whole) || (series.values || []).some((value) => value);

function showEmpty(isEmpty) {
  const box = find("nothing");
  box.hidden = !isEmpty;
  if (!isEmpty) return;
  const ofAgent = chosen.agent === null ? "" : ` of ${chosen.agent || "unnamed agents"}`;
  box.replaceChildren(
    make("h2", null, `No runs${ofAgent} in this range`),
    make("p", null, prose(data.hint)),
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
  const agents = data.agents.includes(chosen.agent) || chosen.agent === null ? data.agents : [...data.agents, chosen.agent];
  const options = [make("option", { value: "all" }, "All agents")];
  for (const name of agents) options.push(make("option", { value: `=${name}` }, name || "(unnamed)"));
  const select = find("agent");
  const before = [...select.options].map((one) => one.value + one.text).join("\n");
  if (before !== options.map((one) => one.value + one.text).join("\n")) select.replaceChildren(...options);
  select.value = chosen.agent === null ? "all" : `=${chosen.agent}`;
  find("agent-field").hidden = agents.length === 0;
  ranges(data.ranges);
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

function applyTheme() {
  const wanted = settings.getItem("treadle-theme");
  const dark = wanted ? wanted === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  find("theme").setAttribute("aria-pressed", String(dark));
}

function change(what) {
  Object.assign(chosen, what);
  writeAddress();
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
  settings.setItem("treadle-theme", dark ? "dark" : "light");
  applyTheme();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", applyTheme);
document.addEventListener("visibilitychange", () => {
  if (document.hidden) clearTimeout(timer);
  else if (chosen.refresh) load();
});
find("source").textContent = start.title;
applyTheme();
ranges(start.ranges);
find("refresh").value = String(chosen.refresh);
if (find("refresh").selectedIndex < 0) find("refresh").value = String((chosen.refresh = 15));
for (const id of ["refresh-field", "now"]) find(id).hidden = !isServed;
load();
