// Bus bandwidth over size, a panel a run; every point is a row of the table.

function bandwidths() {
  if (data.bandwidth.length === 0) return;
  const runs = [...new Set(data.bandwidth.map((point) => point.run))];
  const most = Math.max(...data.bandwidth.flatMap((point) => [point.busbw_gbps, point.spread_gbps?.[1] ?? 0]), data.link_gbps ?? 0) * 1.08;
  const sizes = data.bandwidth.map((point) => point.size_bytes);
  const scale = { most, from: Math.max(0.5, Math.min(...sizes) / 1.5), to: Math.max(...sizes, 1) * 1.5, sizes: [...new Set(sizes)].sort((a, b) => a - b) };
  const kindsUsed = [...new Map(data.bandwidth.map((point) => [data.blocks[point.block].kind, data.blocks[point.block]])).values()];
  const items = [...kindsUsed.map((block) => [shape(block.kind, 11, 6, colour(block)), block.kind]),
    [shape("", 11, 6, "var(--soft)"), "overlapped"], [shape("", 11, 6, "var(--soft)", true), "alone"]];
  if (data.bandwidth.some((point) => point.state === "outside")) items.push([svg("path", { d: "M7 2l8 8m0 -8l-8 8", style: "stroke: var(--soft)", "stroke-width": 2 }), "baseline"]);
  if (data.link_gbps) items.push([svg("line", { x1: 0, x2: 22, y1: 6, y2: 6, style: "stroke: var(--ink)", "stroke-width": 1.5, "stroke-dasharray": "6 3" }), `declared link, ${data.link_gbps} GB/s`]);
  const panels = el("div", { class: "wide" }, ...runs.map((run) => {
    const box = el("div");
    responsive(box, (width) => bandwidthDrawing(data.bandwidth.filter((point) => point.run === run), scale, width, run));
    return el("figure", {}, runs.length > 1 ? el("figcaption", {}, data.runs[run].role) : "", box);
  }));
  const heads = ["Block", "Axis", "Kind", "Run", "State", "Size (B)", "Bus BW (GB/s)", "P5", "P95", ...(data.link_gbps ? ["% of link"] : [])];
  section("bandwidth", legend(items), panels,
    data.link_gbps ? el("p", { class: "note" }, "Where a switch reduces or multicasts (NVLS, SHARP) fewer bytes travel than busbw counts, and it may pass the rate of the link.") : "",
    behind("bus bandwidths", heads, () => data.bandwidth.map((point) => {
      const block = data.blocks[point.block];
      const row = [block.name, block.axis ?? "-", block.kind, data.runs[point.run].role, point.state, point.size_bytes, shown(point.busbw_gbps, point.busbw_gbps.toFixed(2)),
        number(point.spread_gbps?.[0] ?? null, 2), number(point.spread_gbps?.[1] ?? null, 2)];
      return data.link_gbps ? [...row, percentOf(point.busbw_gbps, data.link_gbps)] : row;
    })));
}

// A mark for each kind, so that kinds can be told apart without their colours; a circle for all others.
const outlines = {
  reduce_scatter: "M-4 -4h8v8h-8z",
  all_reduce: "M0 -5.5l5.5 5.5l-5.5 5.5l-5.5 -5.5z",
  all_to_all: "M0 -5.2l5.2 9h-10.4z",
  p2p: "M0 5.2l5.2 -9h-10.4z",
  broadcast: "M-1.8 -5h3.6v3.2h3.2v3.6h-3.2v3.2h-3.6v-3.2h-3.2v-3.6h3.2z",
};
function shape(kind, cx, cy, of, hollow = false) {
  const style = `stroke: ${of}; fill: ${hollow ? "var(--surface)" : of}`;
  if (!outlines[kind]) return svg("circle", { cx, cy, r: 4, style, "stroke-width": 1.6 });
  return svg("path", { d: outlines[kind], transform: `translate(${cx} ${cy})`, style, "stroke-width": 1.6 });
}

const within = ({ spread_gbps: spread }) => (spread ? `\n90 % of executions: ${spread[0].toFixed(1)} to ${spread[1].toFixed(1)} GB/s` : "");

function bandwidthDrawing(points, scale, width, run) {
  const [left, right, top, bottom] = [46, 14, 16, 32];
  const height = Math.min(340, Math.max(220, width * 0.42));
  const x = (size) => left + (Math.log2(size / scale.from) / Math.log2(scale.to / scale.from)) * (width - left - right);
  const y = (rate) => top + (1 - rate / scale.most) * (height - top - bottom);
  const rates = ticks(0, scale.most, 5);
  const span = Math.log2(scale.to / scale.from);
  const every = Math.max(1, Math.ceil(span / ((width - left) / 64)));
  let powers = [];
  for (let power = Math.ceil(Math.log2(scale.from)); power <= Math.log2(scale.to); power += every) powers.push(2 ** power);
  // The sizes that were run, where they fit; else powers of two.
  const apart = scale.sizes.every((size, n) => n === 0 || x(size) - x(scale.sizes[n - 1]) >= 62);
  if (apart) powers = scale.sizes;
  const frame = [
    ...rates.flatMap((rate) => [svg("line", { x1: left, x2: width - right, y1: y(rate), y2: y(rate), class: rate === 0 ? "axis" : "grid" }),
      svg("text", { x: left - 6, y: y(rate) + 4, "text-anchor": "end", class: "soft" }, rate.toFixed(decimals(rates[1])))]),
    svg("text", { x: 0, y: 8, class: "soft" }, "GB/s"),
    ...powers.flatMap((size) => [svg("line", { x1: x(size), x2: x(size), y1: y(0), y2: top, class: "grid" }),
      svg("text", { x: x(size), y: height - 12, "text-anchor": "middle", class: "soft" }, bytes(size))]),
  ];
  if (data.link_gbps) {
    frame.push(svg("line", { x1: left, x2: width - right, y1: y(data.link_gbps), y2: y(data.link_gbps), style: "stroke: var(--ink)", "stroke-width": 1.5, "stroke-dasharray": "6 3" }),
      svg("text", { x: width - right, y: y(data.link_gbps) - 5, "text-anchor": "end" }, `link ${data.link_gbps} GB/s`));
  }
  const series = new Map();
  for (const point of points) {
    const block = data.blocks[point.block];
    const key = `${block.kind}|${block.axis}|${point.state}`;
    series.set(key, [...(series.get(key) ?? []), point]);
  }
  // What overlap costs: from each block alone to the same block overlapped.
  const pairs = points.filter((point) => point.state === "overlapped").map((point) => [point, points.find((other) => other.block === point.block && other.state === "alone")])
    .filter(([, alone]) => alone).map(([point, alone]) => svg("line", { x1: x(alone.size_bytes), x2: x(point.size_bytes), y1: y(alone.busbw_gbps), y2: y(point.busbw_gbps),
      style: `stroke: ${colour(data.blocks[point.block])}`, "stroke-width": 5, "stroke-opacity": 0.25 }));
  const drawn = [...series.values()].flatMap((some) => {
    some.sort((a, b) => a.size_bytes - b.size_bytes);
    const of = colour(data.blocks[some[0].block]);
    const alone = some[0].state === "alone";
    // A line between sizes claims what lies between them; two blocks of one size, or two sizes in all, claim nothing.
    const curve = some[0].state !== "outside" && some.length > 2 && new Set(some.map((point) => point.size_bytes)).size === some.length;
    const line = curve ? some.map((point, n) => `${n ? "L" : "M"}${x(point.size_bytes).toFixed(1)} ${y(point.busbw_gbps).toFixed(1)}`).join("") : "";
    // Where most executions lie, of the alone ones to the left and of the others to the right, so that both show.
    const aside = alone ? -3 : 3;
    const spread = some.filter((point) => point.spread_gbps).map((point) => svg("line", { x1: x(point.size_bytes) + aside, x2: x(point.size_bytes) + aside,
      y1: y(point.spread_gbps[0]), y2: y(point.spread_gbps[1]), style: `stroke: ${of}`, "stroke-width": 1.2, "stroke-opacity": 0.8 }));
    return [svg("path", { d: line, class: `curve ${some[0].state}`, style: `stroke: ${of}`, "stroke-width": 1.4 }), ...spread,
      ...some.map((point) => {
        const mark = point.state === "outside"
          ? svg("path", { d: `M${x(point.size_bytes) - 4} ${y(point.busbw_gbps) - 4}l8 8m0 -8l-8 8`, style: `stroke: ${of}`, "stroke-width": 2 })
          : shape(data.blocks[point.block].kind, x(point.size_bytes), y(point.busbw_gbps), of, alone);
        const share = data.link_gbps ? `, ${((100 * point.busbw_gbps) / data.link_gbps).toFixed(0)} % of the link` : "";
        const text = `${named(data.blocks[point.block])}, ${point.state}\n${bytes(point.size_bytes)}: ${point.busbw_gbps.toFixed(1)} GB/s${share}${within(point)}`;
        mark.addEventListener("pointermove", (event) => showTip(event, text));
        mark.addEventListener("pointerleave", hideTip);
        return mark;
      })];
  });
  return drawing(width, height, `Bus bandwidth over size, ${data.runs[run].role}`, `${points.length} points; the data is in the table below.`, ...frame, ...pairs, ...drawn);
}
