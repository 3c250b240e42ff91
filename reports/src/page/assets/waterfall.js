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
  const seen = exposed.filter((part, n) => n < 14 && largest(part) > whole / 1000);
  const rest = exposed.filter((part) => !seen.includes(part) && largest(part) > 0);
  if (rest.length === 1) seen.push(rest.pop());
  parts.push(...seen);
  if (rest.length > 0) {
    parts.push({ name: `${rest.length} more`, colour: "var(--other)", hatched: true, of: (fall) => sum(rest.map((part) => part.of(fall))) });
  }
  const behindThem = [{ name: "Copies", legend: "only copies", colour: "var(--copy)", of: (fall) => mean(fall, fall.copies_ns) },
    { name: "Idle", legend: "idle", colour: "var(--idle)", of: (fall) => mean(fall, fall.idle_ns) },
    { name: "Rank ends early", legend: "this rank has ended, the longest has not", colour: "var(--line)", of: (fall) => mean(fall, fall.shorter_ns) }].filter((part) => largest(part) > 0);
  parts.push(...behindThem);

  const box = responsive(el("div"), (width) => waterfallDrawing(all, parts, whole, width));
  section("waterfall",
    legend([[swatch("var(--compute)"), "compute"], [[svg("defs", {}, hatching("hatch-fall-legend")), swatch("var(--soft)"),
      svg("rect", { x: 3, y: 1, width: 16, height: 10, rx: 2, fill: "url(#hatch-fall-legend)" })], "exposed communication, by block"],
      ...behindThem.map((part) => [swatch(part.colour), part.legend])]),
    box,
    behind("parts of the mean step", ["Part", ...all.flatMap((fall) => [`${data.runs[fall.run].role} (ms)`, "%"])], () =>
      [...parts.slice(0, 1), ...exposed.filter((part) => largest(part) > 0), ...behindThem, { name: "Step", of: (fall) => mean(fall, fall.step_ns) }].map((part) =>
        [part.name, ...all.flatMap((fall) => [shown(part.of(fall), ms(part.of(fall))), percentOf(part.of(fall), mean(fall, fall.step_ns))])])));
}
const percentOf = (part, whole) => shown((100 * part) / whole, ((100 * part) / whole).toFixed(1));

// Above, the whole step of each run as one bar. Below, what is not compute, each part beginning where the one before
// ends, on a scale of its own: of a step that computes for 97 % of its time the rest would be a few pixels.
function waterfallDrawing(all, parts, whole, width) {
  const narrow = width < 560;
  const several = all.length > 1;
  const [left, right] = [narrow ? 112 : 214, narrow ? 70 : 152];
  const inner = width - left - right;
  const bar = several ? 15 : 18;
  const mean = (fall, ns) => ns / fall.rank_steps;
  const x = (ns) => left + (ns / whole) * inner;
  const drawn = [svg("defs", {}, hatching("hatch-fall"))];
  const faded = (n) => (several && n < all.length - 1 ? 0.55 : 1);
  const segment = (part, n, from, to, y, height) => {
    if (to <= from) return;
    const box = { x: from, y, width: Math.max(0.75, to - from), height };
    drawn.push(svg("rect", { ...box, style: `fill: ${part.colour}`, "fill-opacity": faded(n) }));
    if (part.hatched) drawn.push(svg("rect", { ...box, fill: "url(#hatch-fall)" }));
  };
  const figures = (y, ns, step, strong) => {
    const percent = `${((100 * ns) / step).toFixed(1)} %`;
    drawn.push(svg("text", { x: width - (narrow ? 0 : 62), y, "text-anchor": "end", class: strong }, `${ms(ns)}${narrow ? "" : " ms"}`));
    if (!narrow) drawn.push(svg("text", { x: width, y, "text-anchor": "end", class: strong }, percent));
  };
  const own = (n) => (several && n < all.length - 1 ? "soft" : "");

  let y = 4;
  all.forEach((fall, n) => {
    drawn.push(label(0, y + 15, several ? `Step, ${data.runs[fall.run].role}` : "Step", left - 10, { class: "strong" }));
    let at = 0;
    for (const part of parts) {
      const next = at + part.of(fall);
      segment(part, n, x(at), x(next), y, 22);
      at = next;
    }
    figures(y + 15, mean(fall, fall.step_ns), mean(fall, fall.step_ns), "strong");
    y += 27;
  });
  const last = all[all.length - 1];
  const rest = (fall) => mean(fall, fall.step_ns - fall.compute_ns);
  const most = Math.max(...all.map(rest), 1);
  const enlarged = (ns) => left + (ns / most) * inner;
  const [compute, ...others] = parts;
  // From the end of compute in the bar above to the scale below.
  drawn.push(svg("path", { d: `M${x(compute.of(last))} ${y - 4}L${left} ${y + 20}M${x(mean(last, last.step_ns))} ${y - 4}L${enlarged(rest(last))} ${y + 20}`, class: "curve axis", "stroke-dasharray": "2 3" }));
  y += 24;
  const top = y;
  const at = all.map(() => 0);
  const bars = [];
  for (const part of [compute, ...others]) {
    drawn.push(label(0, y + (bar * all.length) / 2 + 3, part.name, left - 10));
    all.forEach((fall, n) => {
      const ns = part.of(fall);
      if (part !== compute) {
        bars.push([part, n, enlarged(at[n]), enlarged(at[n] + ns), y + n * bar, bar - 2]);
        at[n] += ns;
      } else if (n === 0) {
        drawn.push(svg("text", { x: left + 6, y: y + (bar * all.length) / 2 + 3, class: "soft" }, narrow ? "in the bar above" : "in the bar above; below, what is not compute, enlarged"));
      }
      figures(y + n * bar + bar - 5, ns, mean(fall, fall.step_ns), own(n));
    });
    y += bar * all.length + 8;
  }
  const marks = ticks(0, most, Math.max(2, Math.floor(inner / 90)));
  const unit = most >= 1e6 ? ["ms", 1e6] : ["µs", 1e3];
  const places = decimals(marks[1] / unit[1]);
  drawn.push(...marks.map((ns) => svg("line", { x1: enlarged(ns), x2: enlarged(ns), y1: top + bar * all.length + 6, y2: y, class: "grid" })),
    svg("line", { x1: left, x2: width - right, y1: y, y2: y, class: "axis" }),
    ...marks.map((ns, n) => svg("text", { x: enlarged(ns), y: y + 15, "text-anchor": "middle", class: "soft" }, `${(ns / unit[1]).toFixed(places)}${n === marks.length - 1 ? ` ${unit[0]}` : ""}`)));
  bars.forEach((one) => segment(...one));
  const names = all.map((fall) => data.runs[fall.run].role);
  const description = parts.map((part) => `${part.name}: ${all.map((fall) => `${ms(part.of(fall))} ms`).join(", ")}`).join("; ");
  const caption = [several ? `In each row from above: ${names.join(", ")}.` : "", narrow ? "Numbers in ms." : ""].join(" ").trim();
  return el("figure", {}, caption ? el("figcaption", {}, el("small", {}, caption)) : "",
    drawing(width, y + 22, `Parts of the mean step: ${names.join(", ")}`, description, ...drawn));
}
