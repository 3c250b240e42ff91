// Matrices: slowdown of a block on a rank, waits of a rank in a step, bytes from rank to rank.

// `cells[row][column]` is null, or { fill, strength 0 to 1, text, tip }.
function matrix({ title, description, rows, columns, cells, width, left, cell, axis }) {
  const size = Math.min(cell.most, (width - left - 4) / columns.length);
  const high = cell.height ?? size;
  const top = 34;
  const every = Math.max(1, Math.ceil((cell.label ?? 26) / size));
  const drawn = [label(left, 12, axis, width - left, { class: "soft" })];
  columns.forEach((name, n) => {
    if (n % every === 0) drawn.push(svg("text", { x: left + (n + 0.5) * size, y: top - 6, "text-anchor": "middle", class: "soft" }, name));
  });
  rows.forEach((name, r) => {
    drawn.push(label(left - 8, top + r * high + high / 2 + 4, name, left - 12, { "text-anchor": "end" }));
    cells[r].forEach((value, c) => {
      const gap = size > 6 ? 1 : 0;
      const box = { x: left + c * size, y: top + r * high, width: Math.max(0.5, size - gap), height: high - 1 };
      if (value === null) {
        drawn.push(svg("rect", { ...box, class: "lane" }));
        return;
      }
      const element = svg("g", {}, svg("rect", { ...box, class: "lane" }), svg("rect", { ...box, style: `fill: ${value.fill}`, "fill-opacity": value.strength.toFixed(3) }));
      if (value.text && size >= value.text.length * 7 + 4) {
        element.append(svg("text", { x: box.x + box.width / 2, y: box.y + high / 2 + 4, "text-anchor": "middle" }, value.text));
      }
      element.addEventListener("pointermove", (event) => showTip(event, value.tip));
      element.addEventListener("pointerleave", hideTip);
      drawn.push(element);
    });
  });
  return drawing(Math.max(left + columns.length * size, Math.min(width, 200)), top + rows.length * high + 4, title, description, ...drawn);
}

function panelsOf(items, draw) {
  return el("div", { class: "wide" }, ...items.map((item) => {
    const box = el("div");
    responsive(box, (width) => draw(item, width));
    return el("figure", {}, data.runs.length > 1 ? el("figcaption", {}, data.runs[item.run].role) : "", box);
  }));
}
const scaleLegend = (steps) => legend(steps.map(([fillOf, strength, text]) =>
  [[svg("rect", { x: 3, y: 1, width: 16, height: 10, class: "lane" }), svg("rect", { x: 3, y: 1, width: 16, height: 10, style: `fill: ${fillOf}`, "fill-opacity": strength })], text]));

function slowdowns() {
  if (data.slowdowns.length === 0) return;
  // Twice as slow, or half, is as strong as it gets.
  const strength = (factor) => Math.min(1, Math.abs(Math.log2(factor))) * 0.8;
  const draw = (heat, width) => matrix({
    title: `Slowdown by rank, ${data.runs[heat.run].role}`, axis: "rank", width, left: Math.min(210, width * 0.42),
    description: "A row a block, a column a rank; the data is in the table below.",
    rows: heat.rows.map((row) => short(data.blocks[row.block])), columns: heat.ranks, cell: { most: 84, height: 24 },
    cells: heat.rows.map((row) => row.factors.map((factor, rank) => factor === null ? null : {
      fill: factor >= 1 ? "var(--hot)" : "var(--cold)", strength: strength(factor), text: factor.toFixed(2),
      tip: `${named(data.blocks[row.block])}, rank ${heat.ranks[rank]}\n${factor.toFixed(3)} x its time alone` })),
  });
  section("heat", scaleLegend([["var(--cold)", 0.8, "0.5x or less"], ["var(--cold)", 0, "1x"], ["var(--hot)", strength(1.25), "1.25x"], ["var(--hot)", strength(1.5), "1.5x"], ["var(--hot)", 0.8, "2x or more"]]),
    panelsOf(data.slowdowns, draw),
    behind("slowdowns by rank", ["Block", "Axis", "Run", "Rank", "Slowdown"], () => data.slowdowns.flatMap((heat) => heat.rows.flatMap((row) =>
      row.factors.map((factor, n) => [data.blocks[row.block].name, data.blocks[row.block].axis ?? "-", data.runs[heat.run].role, heat.ranks[n], factor === null ? null : shown(factor, factor.toFixed(3))])))));
}

function waits() {
  const some = data.waits.filter((wait) => wait.ranks.length > 1);
  if (some.length === 0) return;
  const most = Math.max(1, ...some.flatMap((wait) => wait.wait_ns.flat().filter((ns) => ns !== null)));
  const draw = (wait, width) => matrix({
    title: `Waiting of each rank in each step, ${data.runs[wait.run].role}`, width, left: 64,
    axis: wait.a_column > 1 ? `step, a column the mean of ${wait.a_column}` : "step", description: "A row a rank, a column a step; the data is in the table below.",
    rows: wait.ranks.map((rank) => `rank ${rank}`), columns: wait.wait_ns[0].map((_, n) => n * wait.a_column + 1), cell: { most: 40, height: 20, label: 34 },
    cells: wait.wait_ns.map((row, rank) => row.map((ns, step) => ns === null ? null : {
      fill: "var(--heat)", strength: 0.9 * (ns / most), tip: `rank ${wait.ranks[rank]}, step ${step * wait.a_column + 1}\nwaits ${time(ns)}` })),
  });
  section("waits", scaleLegend([["var(--heat)", 0, "0"], ["var(--heat)", 0.45, time(most / 2)], ["var(--heat)", 0.9, time(most)]]), panelsOf(some, draw),
    behind("waits", ["Run", "Rank", "Step", "Wait (ms)"], () => some.flatMap((wait) => wait.wait_ns.flatMap((row, rank) =>
      row.map((ns, step) => [data.runs[wait.run].role, wait.ranks[rank], step * wait.a_column + 1, ns === null ? null : shown(ns, ms(ns))])))));
}

function exchanged() {
  if (data.bytes.length === 0) return;
  const most = Math.max(1, ...data.bytes.flatMap((one) => one.bytes.flatMap((row, from) => row.filter((_, to) => to !== from))));
  const draw = (one, width) => matrix({
    title: `Bytes of all-to-alls from rank to rank, ${data.runs[one.run].role}`, axis: `to rank; ${one.executions} executions in the step`, width, left: 84,
    description: "A row a sender, a column a receiver; the data is in the table below.",
    rows: one.bytes.map((_, rank) => `from rank ${rank}`), columns: one.bytes.map((_, rank) => rank), cell: { most: 96, height: one.bytes.length > 32 ? 12 : 26 },
    cells: one.bytes.map((row, from) => row.map((value, to) => ({
      fill: "var(--heat)", strength: from === to ? 0 : 0.7 * (value / most), text: bytes(value),
      tip: `rank ${from} to rank ${to}${from === to ? ", inside the rank" : ""}\n${bytes(value)} (${value} B)` }))),
  });
  section("bytes", scaleLegend([["var(--heat)", 0, "0"], ["var(--heat)", 0.35, bytes(most / 2)], ["var(--heat)", 0.7, bytes(most)]]), panelsOf(data.bytes, draw),
    behind("bytes from rank to rank", ["Run", "From", "To", "Bytes"], () => data.bytes.flatMap((one) => one.bytes.flatMap((row, from) =>
      row.map((value, to) => [data.runs[one.run].role, from, to, value])))));
}
