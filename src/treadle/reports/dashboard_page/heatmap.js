// How often a number fell into each bucket, over time: one column for each step, darker is more.

function heatmap(panel, frame) {
  const bands = bandsOf(panel.series);
  const most = Math.max(...bands.flatMap((band) => band.counts));
  const paint = (svg, area) => {
    const height = (area.bottom - area.top) / bands.length;
    const every = Math.ceil(14 / height);
    const gap = area.part > 4 ? 1 : 0;
    bands.forEach((band, row) => {
      const y = area.bottom - (row + 1) * height;
      if (row % every === 0)
        svg.append(
          draw("text", { class: "axis", x: area.left - 8, y: y + height / 2 + 3.5, "text-anchor": "end" }, band.label),
        );
      band.counts.forEach((number, place) => {
        const x = area.left + place * area.part;
        const size = { x: x.toFixed(2), y: y.toFixed(2), width: (area.part - gap).toFixed(2), height: (height - gap).toFixed(2) };
        if (number > 0.05) svg.append(draw("rect", { class: `heat heat-${shade(number, most)}`, ...size }));
      });
    });
    svg.append(draw("line", { class: "base", x1: area.left, x2: area.right, y1: area.bottom + 0.5, y2: area.bottom + 0.5 }));
  };
  const readoutOf = (place) => [headline(frame, place), counts(bands, place)];
  const runs = bands.reduce((sum, band) => sum + band.counts.reduce((a, b) => a + b, 0), 0);
  return [
    make("div", { class: "holder" }, plot(`${panel.title}: ${count(runs)} runs`, frame, paint, readoutOf)),
    scale(most),
  ];
}

const SHADES = 6;
// By the square root: one run can be seen beside a hundred.
const shade = (number, most) => Math.max(1, Math.ceil(Math.sqrt(number / most) * SHADES - 1e-9));

// Prometheus' buckets count all that is below a bound; what is between two bounds is their difference.
function bandsOf(series) {
  const bounds = series
    .filter((one) => (one.values || []).some((value) => value !== null))
    .map((one) => ({ bound: one.name === "+Inf" ? Infinity : Number(one.name), values: one.values }))
    .sort((a, b) => a.bound - b.bound);
  const bands = bounds.map((one, row) => {
    const below = row ? bounds[row - 1] : { bound: 0, values: one.values.map(() => 0) };
    return {
      label: bandName(below.bound, one.bound),
      counts: one.values.map((value, place) => Math.max(0, (value || 0) - (below.values[place] || 0))),
    };
  });
  let top = bands.length;
  while (top > 6 && !bands[top - 1].counts.some((number) => number > 0.05)) top -= 1;
  return bands.slice(0, Math.min(bands.length, top + 1));
}

function bandName(below, bound) {
  if (bound === Infinity) return `>${below}`;
  return bound - below <= 1 ? String(bound) : `${below + 1}–${bound}`;
}

function counts(bands, place) {
  const some = bands.filter((band) => band.counts[place] > 0.05).reverse();
  if (!some.length) return make("p", { class: "none" }, "no runs");
  return make(
    "dl",
    null,
    some.map((band) =>
      make(
        "div",
        null,
        make("dt", null, `${band.label} ${band.label === "1" ? "iteration" : "iterations"}`),
        make("dd", null, count(band.counts[place])),
      ),
    ),
  );
}

function scale(most) {
  const steps = Array.from({ length: SHADES }, (_, place) => make("i", { class: `swatch heat-${place + 1}` }));
  return make("p", { class: "legend scale" }, make("span", null, "few"), steps, make("span", null, `${count(most)} runs`));
}
