// The step as steps: each part begins where the one before ends, the last is the whole.

function waterfalls() {
  if (data.waterfalls.length === 0) return;
  const all = data.waterfalls;
  const mean = (fall, ns) => ns / fall.rank_steps;
  const parts = [{ name: "Compute", colour: "var(--compute)", of: (fall) => mean(fall, fall.compute_ns) }];
  const exposed = data.blocks.map((block, index) => ({ block, name: short(block), colour: colour(block), hatched: true,
    of: (fall) => mean(fall, fall.exposed_ns[index]) }));
  const largest = (part) => Math.max(...all.map(part.of));
  const whole = Math.max(...all.map((fall) => mean(fall, fall.step_ns)));
  exposed.sort((a, b) => largest(b) - largest(a));
  // What nobody would see is one row.
  const seen = exposed.filter((part, n) => n < 12 && largest(part) > whole / 1000);
  const rest = exposed.filter((part) => !seen.includes(part) && largest(part) > 0);
  parts.push(...seen);
  if (rest.length > 0) {
    parts.push({ name: `${rest.length} more`, colour: "var(--other)", hatched: true, of: (fall) => sum(rest.map((part) => part.of(fall))) });
  }
  parts.push({ name: "Copies, idle", colour: "var(--copy)", of: (fall) => mean(fall, fall.idle_ns) },
    { name: "Rank ends early", colour: "var(--line)", of: (fall) => mean(fall, fall.shorter_ns) });

  const box = responsive(el("div"), (width) => waterfallDrawing(all, parts, whole, width));
  section("waterfall",
    legend([[swatch("var(--compute)"), "compute"], [[svg("defs", {}, hatching("hatch-fall-legend")), swatch("var(--soft)"),
      svg("rect", { x: 3, y: 1, width: 16, height: 10, rx: 2, fill: "url(#hatch-fall-legend)" })], "exposed communication, by block"],
      [swatch("var(--copy)"), "only copies, or nothing"], [swatch("var(--line)"), "this rank has ended, the longest has not"]]),
    box,
    behind("parts of the mean step", ["Part", ...all.flatMap((fall) => [`${data.runs[fall.run].label} (ms)`, "%"])], () =>
      [...parts.slice(0, 1), ...exposed.filter((part) => largest(part) > 0), ...parts.slice(-2), { name: "Step", of: (fall) => mean(fall, fall.step_ns) }].map((part) =>
        [part.name, ...all.flatMap((fall) => [shown(part.of(fall), ms(part.of(fall))), percentOf(part.of(fall), mean(fall, fall.step_ns))])])));
}
const percentOf = (part, whole) => shown((100 * part) / whole, ((100 * part) / whole).toFixed(1));

function waterfallDrawing(all, parts, whole, width) {
  const narrow = width < 560;
  const [left, right] = [narrow ? 104 : 190, narrow ? 96 : 128];
  const bar = all.length > 1 ? 13 : 18;
  const row = bar * all.length + 9;
  const x = (ns) => left + (ns / whole) * (width - left - right);
  const drawn = [svg("defs", {}, hatching("hatch-fall"))];
  const at = all.map(() => 0);
  let y = 6;
  const rows = [...parts, null];
  rows.forEach((part) => {
    const last = part === null;
    if (last) {
      drawn.push(svg("line", { x1: 0, x2: width, y1: y - 2, y2: y - 2, class: "axis" }));
      y += 4;
    }
    drawn.push(label(0, y + (row - 9) / 2 + 4, last ? "Mean step" : part.name, left - 12, { class: last ? "strong" : "" }));
    all.forEach((fall, n) => {
      const ns = last ? fall.step_ns / fall.rank_steps : part.of(fall);
      const [from, top] = [last ? 0 : at[n], y + n * bar];
      const size = { x: x(from), y: top, width: Math.max(ns > 0 ? 1 : 0, x(ns) - left), height: bar - 2 };
      drawn.push(svg("rect", { ...size, style: `fill: ${last ? "var(--soft)" : part.colour}`, "fill-opacity": all.length > 1 && n < all.length - 1 ? 0.55 : 1 }));
      if (part?.hatched) drawn.push(svg("rect", { ...size, fill: "url(#hatch-fall)" }));
      if (!last) at[n] += ns;
      if (!last) drawn.push(svg("line", { x1: x(at[n]), x2: x(at[n]), y1: top, y2: top + row, class: "grid" }));
      const of = fall.step_ns / fall.rank_steps;
      const text = `${ms(ns)} ms${narrow ? "" : `  ${((100 * ns) / of).toFixed(1)} %`}`;
      drawn.push(svg("text", { x: width, y: top + bar - (all.length > 1 ? 3 : 5), "text-anchor": "end", class: n < all.length - 1 ? "soft" : last ? "strong" : "" }, text));
    });
    y += row;
  });
  const names = all.map((fall) => data.runs[fall.run].label);
  const description = parts.map((part) => `${part.name}: ${all.map((fall) => `${ms(part.of(fall))} ms`).join(", ")}`).join("; ");
  return el("figure", {}, all.length > 1 ? el("figcaption", {}, el("small", {}, `In each row from above: ${names.join(", ")}.`)) : "",
    drawing(width, y, `Parts of the mean step: ${names.join(", ")}`, description, ...drawn));
}
