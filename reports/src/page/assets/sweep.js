// The curves of a sweep: the step, and each block overlapped beside alone, over a size or a setting.

function sweeps() {
  const sweep = data.sweep;
  if (!sweep) return;
  const panels = [...new Set(sweep.points.map((point) => point.panel))];
  const pointOf = new Map(sweep.points.map((point) => [point.run, point]));
  const used = [...new Set(sweep.blocks.map((row) => row.block))];
  const over = (panel, of) => sweep.points.filter((point) => point.panel === panel && of(point) !== null).map((point) => ({ x: point.x, y: of(point), value: point.value }));
  const overBlocks = (panel, block, of) => sweep.blocks.filter((row) => row.block === block && pointOf.get(row.run).panel === panel && of(row) !== null)
    .map((row) => ({ x: pointOf.get(row.run).x, y: of(row), value: pointOf.get(row.run).value }));
  const both = (panel, overlapped, alone) => used.flatMap((index) => [
    { block: data.blocks[index], state: "overlapped", points: overBlocks(panel, index, overlapped) },
    { block: data.blocks[index], state: "alone", points: overBlocks(panel, index, alone) }]);
  const charts = [
    { title: "Step (ms)", series: (panel) => [
      { name: "step", colour: "var(--ink)", state: "overlapped", points: over(panel, (point) => milli(point.step_ns)) },
      { name: "exposed communication", colour: "var(--accent)", state: "alone", points: over(panel, (point) => milli(point.exposed_ns)) }] },
    { title: "Bus bandwidth (GB/s)", series: (panel) => both(panel, (row) => row.busbw_gbps, (row) => row.alone_busbw_gbps), link: data.link_gbps },
    { title: "Time of an execution (ms)", series: (panel) => both(panel, (row) => milli(row.overlapped_ns), (row) => milli(row.alone_ns)) },
    { title: "Slowdown (overlapped / alone)", series: (panel) => used.map((index) => ({ block: data.blocks[index], state: "overlapped", points: overBlocks(panel, index, (row) => row.slowdown) })) },
  ];
  const drawn = [];
  for (const panel of panels) {
    if (panel) drawn.push(el("h3", {}, panel));
    const grid = el("div", { class: "wide" });
    for (const chart of charts) {
      const series = chart.series(panel).filter((one) => one.points.length > 0);
      if (series.length === 0) continue;
      series.forEach((one) => one.points.sort((a, b) => a.x - b.x));
      const box = el("div");
      grid.append(el("figure", {}, el("figcaption", {}, chart.title), box));
      responsive(box, (width) => curvesDrawing(sweep, chart, series, width));
    }
    drawn.push(grid);
  }
  const comm = used.map((index) => data.blocks[index]);
  section("sweep", legend([...comm.map((block) => [shape(block.kind, 11, 6, colour(block)), short(block)]),
    [svg("line", { x1: 0, x2: 22, y1: 6, y2: 6, style: "stroke: var(--soft)", "stroke-width": 1.6 }), "overlapped"],
    [svg("line", { x1: 0, x2: 22, y1: 6, y2: 6, class: "alone", style: "stroke: var(--soft)", "stroke-width": 1.6 }), "alone; of the step, what is exposed"]]), ...drawn,
    behind("the sweep", [sweep.axis, "With", "Step (ms)", "Exposed (ms)", "Block", "t_overlap (ms)", "t_alone (ms)", "Slowdown", "busbw (GB/s)", "busbw alone"], () =>
      sweep.blocks.map((row) => {
        const point = pointOf.get(row.run);
        return [sweep.numeric ? shown(point.x, at(sweep, point.value)) : point.value, point.panel || "-", number(milli(point.step_ns), 3), number(milli(point.exposed_ns), 3), named(data.blocks[row.block]),
          number(milli(row.overlapped_ns), 3), number(milli(row.alone_ns), 3), number(row.slowdown, 2), number(row.busbw_gbps, 2), number(row.alone_busbw_gbps, 2)];
      })));
}

const milli = (ns) => (ns === null ? null : ns / 1e6);
const at = (sweep, value) => (sweep.bytes ? bytes(Number(value)) : value);

function curvesDrawing(sweep, chart, series, width) {
  const [left, right, top, bottom, height] = [54, 14, 12, 30, 240];
  const all = series.flatMap((one) => one.points);
  const places = [...new Map(sweep.points.map((point) => [point.x, point.value])).entries()].sort((a, b) => a[0] - b[0]);
  const [first, last] = [places[0][0], places[places.length - 1][0]];
  // Doublings are equally far apart where they are swept; what is below or at zero has no logarithm.
  const logarithmic = sweep.numeric && first > 0 && last / first >= 8;
  const along = logarithmic ? (x) => Math.log(x / first) / Math.log(last / first) : (x) => (x - first) / (last - first || 1);
  const x = (value) => left + 12 + along(value) * (width - left - right - 24);
  const values = all.map((point) => point.y).filter((value) => value > 0);
  const [low, high] = [Math.min(...values), Math.max(...values, chart.link ?? 0)];
  const steep = values.length === all.length && high / low > 50;
  const most = high > 0 ? high * 1.08 : 1;
  const y = steep ? (value) => top + (1 - Math.log(value / (low * 0.8)) / Math.log((high * 1.2) / (low * 0.8))) * (height - top - bottom)
    : (value) => top + (1 - value / most) * (height - top - bottom);
  const marks = steep ? logTicks(low * 0.8, high * 1.2, 5) : ticks(0, most, 5);
  const text = (value) => (steep ? String(Number(value.toPrecision(3))) : value.toFixed(decimals(marks[1] - marks[0])));
  const drawn = marks.flatMap((value) => [svg("line", { x1: left, x2: width - right, y1: y(value), y2: y(value), class: value === 0 ? "axis" : "grid" }),
    svg("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end", class: "soft" }, text(value))]);
  if (steep) drawn.push(svg("text", { x: 0, y: 8, class: "soft" }, "log"));
  // As many values as fit beside each other.
  const every = Math.max(1, Math.ceil((places.length * (sweep.numeric && !sweep.bytes ? 40 : 66)) / (width - left - right)));
  places.filter((_, n) => n % every === 0).forEach(([place, value]) => drawn.push(label(x(place), height - 10, at(sweep, value), 120, { "text-anchor": "middle", class: "soft" })));
  if (chart.link) {
    drawn.push(svg("line", { x1: left, x2: width - right, y1: y(chart.link), y2: y(chart.link), style: "stroke: var(--ink)", "stroke-width": 1.5, "stroke-dasharray": "6 3" }),
      svg("text", { x: width - right, y: y(chart.link) - 5, "text-anchor": "end" }, `link ${chart.link} GB/s`));
  }
  for (const one of series) {
    const of = one.colour ?? colour(one.block);
    const name = one.name ?? `${named(one.block)}, ${one.state}`;
    // A line claims an order, which names have none of, and one value a point, which several runs of one value are not.
    const line = sweep.numeric && new Set(one.points.map((point) => point.x)).size === one.points.length;
    if (line) drawn.push(svg("path", { d: one.points.map((point, n) => `${n ? "L" : "M"}${x(point.x).toFixed(1)} ${y(point.y).toFixed(1)}`).join(""), class: `curve ${one.state}`, style: `stroke: ${of}`, "stroke-width": 1.6 }));
    for (const point of one.points) {
      const dot = shape(one.block?.kind ?? "", x(point.x), y(point.y), of, one.state === "alone");
      dot.addEventListener("pointermove", (event) => showTip(event, `${name}\n${sweep.axis} ${at(sweep, point.value)}: ${digits(point.y)}`));
      dot.addEventListener("pointerleave", hideTip);
      drawn.push(dot);
    }
  }
  return drawing(width, height, `${chart.title} over ${sweep.axis}`, `${all.length} points; the data is in the table below.`, ...drawn);
}
