// Tables: of panels that have one row for each series, and of tools.

function table(panel) {
  const rows = panel.series.filter((one) => one.whole !== null && one.whole > 0).sort((a, b) => b.whole - a.whole);
  const classes = slotsOf(rows.slice(0, SLOTS).map(nameOf));
  const sum = rows.reduce((all, one) => all + one.whole, 0);
  return make(
    "table",
    null,
    make("thead", null, make("tr", null, head("Reason"), head("Runs", true), head("Share", true))),
    make(
      "tbody",
      null,
      rows.map((one, place) =>
        make(
          "tr",
          null,
          make("th", { scope: "row" }, make("i", { class: `swatch ${classes[place] || "slot-more"}` }), nameOf(one)),
          make("td", null, format(panel.unit, one.whole)),
          make("td", { class: "quiet" }, percent(one.whole / sum)),
        ),
      ),
    ),
  );
}

const head = (text, isNumber) => make("th", { scope: "col", class: isNumber ? "number" : null }, text);

let sortedBy = { key: "calls", down: true };

function toolsTable(tools, redraw) {
  const columns = [{ key: "name", title: "Tool" }, ...tools.columns];
  const sign = sortedBy.down ? -1 : 1;
  const value = (row) => (row[sortedBy.key] === undefined ? null : row[sortedBy.key]);
  const rows = [...tools.rows].sort((a, b) => {
    const [left, right] = [value(a), value(b)];
    if (left === null || right === null) return (left === null) - (right === null);
    return sign * (left < right ? -1 : left > right ? 1 : 0);
  });
  const most = Math.max(1, ...tools.rows.map((row) => row.calls || 0));
  return make(
    "table",
    { class: "tools" },
    make("thead", null, make("tr", null, columns.map((column) => sortable(column, redraw)))),
    make("tbody", null, rows.map((row) => toolRow(row, tools.columns, most))),
  );
}

function sortable(column, redraw) {
  const isIt = sortedBy.key === column.key;
  const button = make("button", { type: "button" }, column.title);
  button.addEventListener("click", () => {
    sortedBy = { key: column.key, down: isIt ? !sortedBy.down : column.key !== "name" };
    redraw(column.key);
  });
  const direction = isIt ? (sortedBy.down ? "descending" : "ascending") : "none";
  button.dataset.key = column.key;
  return make("th", { scope: "col", class: column.unit ? "number" : null, "aria-sort": direction }, button);
}

function toolRow(row, columns, most) {
  const cells = columns.map(({ key, unit }) => {
    const value = row[key];
    if (key === "calls")
      return make("td", null, meter((value || 0) / most), make("span", { class: "figure" }, format(unit, value || 0)));
    if (key === "errors" && value && row.calls)
      return make("td", null, make("span", { class: "quiet" }, percent(value / row.calls)), make("span", { class: "figure" }, format(unit, value)));
    return make("td", { class: value ? null : "quiet" }, value ? format(unit, value) : unit === "seconds" ? "–" : "0");
  });
  return make("tr", null, make("th", { scope: "row", title: row.name }, row.name || "(unnamed)"), cells);
}

function meter(share) {
  return draw(
    "svg",
    { class: "meter", viewBox: "0 0 100 4", preserveAspectRatio: "none", "aria-hidden": "true" },
    draw("rect", { width: Math.max(1, share * 100).toFixed(1), height: 4 }),
  );
}
