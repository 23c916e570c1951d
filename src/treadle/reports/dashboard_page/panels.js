// Tiles and panels, and their texts if there is no data.

// The panels shown as tiles, and the panel whose values are drawn as a sparkline.
const TILES = [
  { key: "runs", trend: "runs_per_minute" },
  { key: "active_runs", trend: "active_runs_by_agent" },
  { key: "answered" },
  { key: "iterations", title: "Iterations per run", parts: true, trend: "iterations" },
  { key: "cost", trend: "cost_per_hour" },
  { key: "cost_per_hour", title: "Cost per hour", trend: "cost_per_hour" },
  { key: "mean_cost", title: "Cost per run", trend: "cost_per_run" },
  { key: "tokens", title: "Tokens/second", trend: "tokens" },
];

const EMPTY = {
  runs_per_minute: "No run ended in this range.",
  tool_calls: "No tool was called in this range.",
  tool_latency: "No tool was called in this range.",
  tool_errors: "No tool call failed.",
  calls_held: "All requested calls ran.",
  breaker_transitions: "No shared breaker changed its state.",
  breakers_open: "No shared breaker is open.",
  broken_runs: "No guard stopped a run.",
  time_to_first_chunk: "No response was streamed in this range.",
  output_speed: "No model reported tokens in this range.",
  tokens: "No model reported tokens in this range.",
  model_retries: "No attempt failed.",
  cost_per_hour: "No cost is known. Set cost_of= on the loop, or use a backend that reports costs.",
  cost_per_run: "No cost is known. Set cost_of= on the loop, or use a backend that reports costs.",
};

const panelsOf = (data) => data.rows.flatMap((row) => row.panels);
const sumOf = (series) => {
  const values = series.map((one) => one.whole).filter((value) => value !== null && value !== undefined);
  return values.length ? values.reduce((a, b) => a + b, 0) : null;
};

function tiles(data) {
  const byKey = new Map(panelsOf(data).map((panel) => [panel.key, panel]));
  const named = new Set(TILES.map((one) => one.key));
  const others = panelsOf(data).filter((panel) => panel.kind === "stat" && !named.has(panel.key));
  return [...TILES, ...others].filter((one) => byKey.has(one.key)).map((one) => tile(one, byKey));
}

function tile(wanted, byKey) {
  const panel = byKey.get(wanted.key);
  const trend = byKey.get(wanted.trend);
  const value = wanted.parts
    ? panel.series.map((one) => [
        make("span", { class: "part" }, make("small", null, one.name), format(panel.unit, one.whole)),
      ])
    : format(panel.unit, sumOf(panel.series));
  const isNothing = wanted.parts ? !panel.series.length : sumOf(panel.series) === null;
  return make(
    "article",
    { class: "tile", id: `tile-${panel.key}`, title: panel.description },
    make("h3", null, wanted.title || panel.title),
    make("p", { class: isNothing ? "value nothing-yet" : "value" }, isNothing ? "–" : value),
    trend ? sparkline(totals(trend.series)) : null,
  );
}

function totals(series) {
  const some = series.filter(hasValues);
  if (!some.length) return [];
  const isQuantile = some.every((one) => /^p\d+/.test(one.name));
  const used = isQuantile ? some.slice(0, 1) : some;
  return used[0].values.map((_, place) => used.reduce((sum, one) => sum + (one.values[place] || 0), 0));
}

function rows(data) {
  const drawn = data.rows.map((row) => {
    const cards = row.panels.filter((panel) => panel.kind !== "stat").map((panel) => card(panel, data));
    if (row.title === "Tools") cards.unshift(toolsCard(data.tools));
    if (!cards.length) return null;
    return make(
      "section",
      { class: `row of-${cards.length}`, "aria-label": row.title },
      make("h2", null, row.title),
      make("div", { class: "cards" }, cards),
    );
  });
  return drawn.filter((row) => row);
}

function card(panel, data) {
  return make(
    "article",
    { class: `card ${panel.kind}`, id: `panel-${panel.key}` },
    make("h3", null, panel.title),
    make("p", { class: "about" }, prose(panel.description), leftOut(panel)),
    body(panel, data),
  );
}

const leftOut = (panel) => (panel.left_out ? ` Not shown: ${panel.left_out} smaller ones.` : null);

function body(panel, data) {
  if (panel.error) return make("p", { class: "refused" }, panel.error);
  const some = panel.series.filter(panel.kind === "table" ? (one) => one.whole > 0 : hasValues);
  const counts = panel.kind === "heatmap" ? some.filter((one) => one.values.some((value) => value > 0)) : some;
  if (!counts.length) return make("p", { class: "empty" }, EMPTY[panel.key] || "No data in this range.");
  if (panel.kind === "table") return table(panel);
  return panel.kind === "heatmap" ? heatmap(panel, data) : chart(panel, data);
}

function toolsCard(tools) {
  const holder = make("div", { class: "wide-table" });
  const show = (focus) => {
    if (tools.error) holder.replaceChildren(make("p", { class: "refused" }, tools.error));
    else if (!tools.rows.length) holder.replaceChildren(make("p", { class: "empty" }, EMPTY.tool_calls));
    else holder.replaceChildren(toolsTable(tools, show));
    const button = focus && [...holder.querySelectorAll("button")].find((one) => one.dataset.key === focus);
    if (button) button.focus();
  };
  show();
  return make(
    "article",
    { class: "card tools", id: "panel-tools" },
    make("h3", null, "Tools"),
    make("p", { class: "about" }, "Calls that ran in the time range, errors, durations, and calls that did not run.", leftOut(tools)),
    holder,
  );
}
