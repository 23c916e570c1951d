// Values over time: lines, or bars on top of each other where they add up to a whole.

const MOST_SERIES = 8;
const hiddenSeries = new Set();

const nameOf = (series) => series.name || "(unnamed)";
const weight = (series) =>
  Math.max(series.whole || 0, ...series.values.map((value) => (value === null ? 0 : Math.abs(value))));
const hasValues = (series) => (series.values || []).some((value) => value !== null);

function chart(panel, frame) {
  const all = panel.series.filter(hasValues);
  const bySize = panel.stacked ? [...all].sort((a, b) => weight(b) - weight(a)) : all;
  const drawn = bySize.slice(0, MOST_SERIES);
  const classes = slotsOf(drawn.map(nameOf));
  const shown = drawn.map((series, place) => ({
    name: nameOf(series),
    whole: series.whole,
    values: series.values,
    slot: classes[place],
    key: `${panel.key}\n${nameOf(series)}`,
  }));
  const visible = () => shown.filter((series) => !hiddenSeries.has(series.key));
  const paint = (svg, area) => (panel.stacked ? bars : lines)(svg, area, panel, visible());
  const readoutOf = (place) => [headline(frame, place), readings(panel, visible(), place)];
  const summary = shown.map((series) => `${series.name} ${format(panel.unit, series.whole)}`).join(", ");
  const holder = make("div", { class: "holder" });
  const build = () => {
    const old = holder.firstChild;
    if (old) plots.delete(old);
    holder.replaceChildren(plot(`${panel.title}: ${summary}`, frame, paint, readoutOf));
  };
  build();
  return [holder, legend(panel, shown, all.length - shown.length, build)];
}

function lines(svg, area, panel, shown) {
  const most = Math.max(0, ...shown.flatMap((series) => series.values.map((value) => value || 0)));
  const y = valueAxis(svg, area, most, panel.unit);
  for (const series of [...shown].reverse()) {
    const parts = pieces(series.values).map((piece) => {
      const points = piece.map(([place, value]) => `${area.middle(place).toFixed(1)} ${y(value).toFixed(1)}`);
      return `M${points.join("L")}`;
    });
    svg.append(draw("path", { class: `line ${series.slot}`, d: parts.join("") }));
    for (const piece of pieces(series.values)) {
      if (piece.length > 1) continue;
      const [place, value] = piece[0];
      svg.append(draw("circle", { class: `dot ${series.slot}`, cx: area.middle(place), cy: y(value), r: 2.2 }));
    }
  }
}

// Stretches of values that follow each other: a line has a gap where there is nothing.
function pieces(values) {
  const found = [];
  values.forEach((value, place) => {
    if (value === null) return;
    const last = found[found.length - 1];
    if (last && last[last.length - 1][0] === place - 1) last.push([place, value]);
    else found.push([[place, value]]);
  });
  return found;
}

function bars(svg, area, panel, shown) {
  const length = shown.length ? shown[0].values.length : 0;
  const sums = Array.from({ length }, (_, place) =>
    shown.reduce((sum, series) => sum + (series.values[place] || 0), 0),
  );
  const y = valueAxis(svg, area, Math.max(0, ...sums), panel.unit);
  const gap = area.part > 4 ? 1 : 0;
  const bottom = new Array(length).fill(0);
  for (const series of shown) {
    let d = "";
    series.values.forEach((value, place) => {
      if (!value || value < 0) return;
      const low = y(bottom[place]);
      bottom[place] += value;
      const high = y(bottom[place]);
      const x = area.left + place * area.part;
      d += `M${x.toFixed(2)} ${low.toFixed(2)}V${high.toFixed(2)}h${(area.part - gap).toFixed(2)}V${low.toFixed(2)}Z`;
    });
    svg.append(draw("path", { class: `bar ${series.slot}`, d }));
  }
}

function readings(panel, shown, place) {
  const order = panel.stacked ? [...shown].reverse() : shown;
  const some = order.filter((series) => !panel.stacked || series.values[place]);
  if (!some.length) return make("p", { class: "none" }, "nothing");
  return make(
    "dl",
    null,
    some.map((series) =>
      make(
        "div",
        null,
        make("dt", null, make("i", { class: `swatch ${series.slot}` }), series.name),
        make("dd", null, format(panel.unit, series.values[place])),
      ),
    ),
  );
}

function legend(panel, shown, more, build) {
  const items = shown.map((series) => {
    const button = make(
      "button",
      { type: "button", "aria-pressed": String(!hiddenSeries.has(series.key)), title: series.name },
      make("i", { class: `swatch ${series.slot}` }),
      make("span", { class: "name" }, series.name),
      make("span", { class: "whole" }, format(panel.unit, series.whole)),
    );
    button.addEventListener("click", () => {
      if (!hiddenSeries.delete(series.key)) hiddenSeries.add(series.key);
      button.setAttribute("aria-pressed", String(!hiddenSeries.has(series.key)));
      build();
    });
    return make("li", null, button);
  });
  if (more > 0) items.push(make("li", { class: "more" }, `and ${more} smaller`));
  return make("ul", { class: "legend", "aria-label": "Over the whole time" }, items);
}

// The trend of a tile, small and without a scale.
function sparkline(values) {
  const present = values.map((value) => value || 0);
  const most = Math.max(...present);
  if (!most) return null;
  const width = 100 / present.length;
  const d = present
    .map((value, place) => {
      const height = (value / most) * 24;
      return value
        ? `M${(place * width).toFixed(2)} 24v${(-height).toFixed(2)}h${(width * 0.8).toFixed(2)}V24Z`
        : "";
    })
    .join("");
  return draw(
    "svg",
    { class: "spark", viewBox: "0 0 100 24", preserveAspectRatio: "none", "aria-hidden": "true" },
    draw("path", { d }),
  );
}
