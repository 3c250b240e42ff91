// Empirical distribution functions: a small panel a block, all of its runs and both states in it.

function distributions() {
  const groups = data.blocks.map((block, index) => ({ block, curves: data.distributions.filter((curve) => curve.block === index) }))
    .filter((group) => group.curves.some((curve) => curve.n > 1));
  if (groups.length === 0) return;
  // Communication first, and what takes longest before the rest.
  const weight = ({ block, curves }) => (block.role === "comm" ? 1e18 : 0) + Math.max(...curves.map((curve) => curve.n * middle(curve.ns)));
  groups.sort((a, b) => weight(b) - weight(a));
  const panels = el("div", { class: "panels" });
  const add = (some) => some.forEach((group) => {
    const box = el("div");
    panels.append(el("figure", {}, el("figcaption", { title: named(group.block) },
      svg("svg", { width: 10, height: 10, style: "display: inline-block; margin-right: 6px", "aria-hidden": "true" },
        svg("rect", { width: 10, height: 10, rx: 2, style: `fill: ${colour(group.block)}` })), short(group.block)), box));
    responsive(box, (width) => distributionDrawing(group, width));
  });
  // A few more than fit three rows of four are not worth a button.
  const most = groups.length > 16 ? 12 : groups.length;
  add(groups.slice(0, most));
  const more = el("button", { type: "button" }, `Show ${groups.length - most} more`);
  more.addEventListener("click", () => { add(groups.slice(most)); redrawAll(); more.remove(); });
  section("distributions", runLegend(groups), panels, groups.length > most ? el("p", { class: "tools" }, more) : "",
    behind("percentiles", ["Block", "Axis", "Run", "State", "Executions", "Min (ms)", "P25", "Median", "P75", "P95", "Max"], () =>
      groups.flatMap(({ block, curves }) => curves.map((curve) => [block.name, block.axis ?? "-", data.runs[curve.run].role, curve.state, curve.n,
        ...[0, 25, 50, 75, 95, 100].map((percent) => { const ns = quantile(curve.ns, percent); return shown(ns, ms(ns)); })]))));
}

const quantile = (ns, percent) => ns[percent];
const middle = (ns) => ns[50];

// The last run is drawn strong, those before it thin: before under after.
const weightOf = (run) => (run === data.runs.length - 1 ? 2 : 1);
function runLegend(groups) {
  const used = [...new Set(groups.flatMap((group) => group.curves.map((curve) => `${curve.run}|${curve.state}`)))].sort();
  return legend(used.map((key) => {
    const [run, state] = key.split("|");
    const text = data.runs.length > 1 ? `${data.runs[run].role}, ${state}` : state;
    return [svg("line", { x1: 0, x2: 22, y1: 6, y2: 6, class: state, style: "stroke: var(--ink)", "stroke-width": weightOf(Number(run)), "stroke-opacity": weightOf(Number(run)) === 2 ? 1 : 0.6 }), text];
  }));
}

function distributionDrawing({ block, curves }, width) {
  const [left, right, top, bottom] = [44, 10, 6, 26];
  const height = 150;
  const low = Math.min(...curves.map((curve) => curve.ns[0]));
  const high = Math.max(...curves.map((curve) => curve.ns[curve.ns.length - 1]));
  const pad = Math.max((high - low) * 0.06, high * 0.01, 1);
  // Over more than a factor of five only a logarithmic axis shows both ends.
  const logarithmic = low > 0 && high / low > 5;
  const [from, to] = logarithmic ? [low * 0.9, high * 1.1] : [Math.max(0, low - pad), high + pad];
  const place = logarithmic ? (ns) => Math.log(ns / from) / Math.log(to / from) : (ns) => (ns - from) / (to - from);
  const x = (ns) => left + Math.min(1, Math.max(0, place(ns))) * (width - left - right);
  const y = (share) => top + (1 - share) * (height - top - bottom);
  const count = Math.max(2, Math.floor((width - left) / 70));
  const marks = logarithmic ? logTicks(from, to, count) : ticks(from, to, count);
  const unit = to >= 1e6 ? ["ms", 1e6] : ["µs", 1e3];
  const step = logarithmic ? null : marks[1] - marks[0];
  const text = (ns) => (logarithmic ? String(Number((ns / unit[1]).toPrecision(3))) : (ns / unit[1]).toFixed(decimals(step / unit[1] || 1)));
  const frame = [
    ...[0, 0.5, 1].flatMap((share) => [svg("line", { x1: left, x2: width - right, y1: y(share), y2: y(share), class: share === 0 ? "axis" : "grid" }),
      svg("text", { x: left - 6, y: y(share) + 4, "text-anchor": "end", class: "soft" }, `${share * 100} %`)]),
    ...marks.flatMap((ns, n) => [svg("line", { x1: x(ns), x2: x(ns), y1: y(0), y2: y(1), class: "grid" }),
      svg("text", { x: x(ns), y: height - 8, "text-anchor": "middle", class: "soft" }, `${text(ns)}${n === marks.length - 1 ? ` ${unit[0]}` : ""}`)]),
  ];
  const lines = curves.flatMap((curve) => {
    const style = `stroke: ${block.role === "comm" ? colour(block) : "var(--ink)"}`;
    const strong = weightOf(curve.run);
    const median = middle(curve.ns);
    return [svg("path", { d: steps(curve, x, y), class: `curve ${curve.state}`, style, "stroke-width": strong, "stroke-opacity": strong === 2 ? 1 : 0.6 }),
      svg("circle", { cx: x(median), cy: y(0.5), r: strong + 1.2, style: `${style}; fill: ${curve.state === "alone" ? "var(--surface)" : style.slice(8)}` },
        svg("title", {}, `${data.runs[curve.run].role}, ${curve.state}: median ${time(median)}, ${curve.n} executions`))];
  });
  const description = curves.map((curve) => `${data.runs[curve.run].role}, ${curve.state}: median ${time(middle(curve.ns))}`).join("; ");
  const note = logarithmic ? svg("text", { x: left + 4, y: top + 10, class: "soft" }, "log") : null;
  return drawing(width, height, `Distribution of ${named(block)}`, description, ...frame, ...lines, note);
}

function logTicks(from, to, count) {
  for (const factors of [[1, 2, 3, 5, 7], [1, 2, 5], [1, 3], [1]]) {
    const all = [];
    for (let power = Math.floor(Math.log10(from)); power <= Math.log10(to); power += 1) {
      all.push(...factors.map((factor) => factor * 10 ** power).filter((ns) => ns >= from && ns <= to));
    }
    if (all.length <= count || factors.length === 1) return all;
  }
  return [];
}

// Percentiles by nearest rank: so many percent took at most so long, and nobody less than the smallest.
function steps({ ns }, x, y) {
  let d = `M${x(ns[0]).toFixed(1)} ${y(0).toFixed(1)}`;
  ns.forEach((value, percent) => { d += `H${x(value).toFixed(1)}V${y(percent / 100).toFixed(1)}`; });
  return d;
}
