// What changed from before to after, a row a comparison: the change with its interval, over what noise alone would make.

function verdicts() {
  const all = data.verdicts;
  if (!all) return;
  const items = ["worse", "better", "~", "too few", "refused"].filter((verdict) => all.some((row) => row.verdict === verdict))
    .map((verdict) => [mark(verdict, 11, 6), { "~": "no change proved", "too few": "too few runs", refused: "no verdict" }[verdict] ?? verdict]);
  items.push([svg("line", { x1: 1, x2: 21, y1: 6, y2: 6, style: "stroke: var(--ink)", "stroke-width": 1.5 }), "95 % interval"]);
  if (all.some((row) => row.noise_pct !== null)) items.push([swatch("var(--grid)"), "noise among the runs before"]);
  const drawn = document.createDocumentFragment();
  drawn.append(legend(items), responsive(el("div"), (width) => verdictsDrawing(all, width)));
  // Before the table, which stands there already.
  document.querySelector("#verdicts .scroll").before(drawn);
}

const verdictColours = { worse: "var(--hot)", better: "var(--cold)" };
// A shape for each verdict, so that it can be told without its colour.
function mark(verdict, cx, cy) {
  const of = verdictColours[verdict] ?? "var(--soft)";
  const path = { worse: "M-5 4h10l-5 -9z", better: "M-5 -4h10l-5 9z" }[verdict];
  if (path) return svg("path", { d: path, transform: `translate(${cx} ${cy})`, style: `fill: ${of}` });
  return svg("circle", { cx, cy, r: 4, style: `stroke: ${of}; fill: var(--surface)`, "stroke-width": 1.6 });
}

const compared = (row) => (row.name === row.metric ? row.name : `${row.name} ${row.metric}`);

function verdictsDrawing(all, width) {
  const rows = all.filter((row) => row.change_pct !== null);
  const narrow = width < 560;
  const [left, right, bar] = [narrow ? 130 : 280, narrow ? 52 : 64, 22];
  const ends = rows.flatMap((row) => [row.change_pct, ...(row.interval_pct ?? []), row.noise_pct ?? 0, -(row.noise_pct ?? 0)]);
  const [low, high] = [Math.min(...ends, -1), Math.max(...ends, 1)];
  const margin = (high - low) * 0.04;
  const x = (percent) => left + ((percent - low + margin) / (high - low + 2 * margin)) * (width - left - right);
  const bottom = rows.length * bar + 6;
  const marks = ticks(low, high, Math.max(2, Math.floor((width - left - right) / 80)));
  const signed = (value, places) => `${value > 0 ? "+" : ""}${value.toFixed(places)}`;
  const drawn = marks.flatMap((at) => [svg("line", { x1: x(at), x2: x(at), y1: 0, y2: bottom, class: Math.abs(at) < 1e-9 ? "axis" : "grid" }),
    svg("text", { x: x(at), y: bottom + 15, "text-anchor": "middle", class: "soft" }, `${signed(at, decimals(marks[1] - marks[0]))} %`)]);
  rows.forEach((row, n) => {
    const y = n * bar + bar / 2 + 3;
    const noise = row.noise_pct ?? 0;
    const [from, to] = row.interval_pct ?? [row.change_pct, row.change_pct];
    const box = svg("g", {},
      label(0, y + 4, compared(row), left - 10, row.verdict in verdictColours ? { class: "strong" } : {}),
      svg("rect", { x: x(-noise), y: y - 8, width: Math.max(0, x(noise) - x(-noise)), height: 16, style: "fill: var(--grid)" }),
      svg("line", { x1: x(from), x2: x(to), y1: y, y2: y, style: `stroke: ${verdictColours[row.verdict] ?? "var(--soft)"}`, "stroke-width": 1.8 }),
      mark(row.verdict, x(row.change_pct), y),
      svg("text", { x: width, y: y + 4, "text-anchor": "end", class: row.verdict in verdictColours ? "strong" : "soft" }, signed(row.change_pct, 1)));
    const between = row.interval_pct ? `\n95 % interval ${signed(from, 1)} to ${signed(to, 1)} %` : "";
    box.addEventListener("pointermove", (event) => showTip(event, `${compared(row)}: ${row.verdict}\n${signed(row.change_pct, 1)} %${between}${row.noise_pct === null ? "" : `\nnoise ${row.noise_pct.toFixed(1)} %`}`));
    box.addEventListener("pointerleave", hideTip);
    drawn.push(box);
  });
  return drawing(width, bottom + 22, "Changes from before to after, in percent", `${rows.length} comparisons; the data is in the table below.`, ...drawn);
}
