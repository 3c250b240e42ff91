// Matrices: what a block costs another, waits of a rank in a step, bytes from rank to rank.

// `cells[row][column]` is null, or { fill, strength 0 to 1, text, tip }.
function matrix({ title, description, rows, columns, cells, width, left, cell, axis, slanted = 0 }) {
  const size = Math.max(cell.least ?? 0, Math.min(cell.most, (width - left - 4) / columns.length));
  const high = cell.height ?? size;
  const top = (axis ? 34 : 20) + slanted;
  const every = Math.max(1, Math.ceil((cell.label ?? 26) / size));
  const drawn = axis ? [label(left, 12, axis, width - left, { class: "soft" })] : [];
  columns.forEach((name, n) => {
    if (slanted > 0) {
      const [px, py] = [left + (n + 0.5) * size, top - 8];
      drawn.push(label(px, py, name, (slanted + 10) * 1.35, { transform: `rotate(-45 ${px} ${py})` }));
    } else if (n % every === 0) drawn.push(svg("text", { x: left + (n + 0.5) * size, y: top - 6, "text-anchor": "middle", class: "soft" }, name));
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
  return drawing(Math.max(left + columns.length * size + slanted, Math.min(width, 200)), top + rows.length * high + 4, title, description, ...drawn);
}

// A drawing a run, side by side unless they are broad. `note` says more about one of them.
function panelsOf(items, draw, { broad = false, note = () => "" } = {}) {
  return el("div", { class: broad ? "stack" : "wide" }, ...items.map((item) => {
    const box = el("div");
    responsive(box, (width) => draw(item, width));
    const words = [data.runs.length > 1 ? data.runs[item.run].role : "", el("small", {}, note(item))];
    return el("figure", {}, el("figcaption", {}, words[0], words[0] && note(item) ? " · " : "", words[1]), box);
  }));
}
const scaleLegend = (steps) => legend(steps.map(([fillOf, strength, text]) =>
  [[svg("rect", { x: 3, y: 1, width: 16, height: 10, class: "lane" }), svg("rect", { x: 3, y: 1, width: 16, height: 10, style: `fill: ${fillOf}`, "fill-opacity": strength })], text]));

// Communication beside everything, and compute beside communication: rows and columns in the order of the pattern, the
// communicating ones first.
function interference() {
  if (data.interference.length === 0) return;
  // Twice as slow, or half, is as strong as it gets.
  const strength = (factor) => Math.min(1, Math.abs(Math.log2(factor))) * 0.8;
  const runs = [...new Set(data.interference.map((pair) => pair.run))];
  const heats = runs.map((run) => {
    const pairs = data.interference.filter((pair) => pair.run === run);
    const alone = pairs.some((pair) => pair.against_alone !== null);
    const factor = (pair) => (alone ? pair.against_alone : pair.against_without);
    const known = pairs.filter((pair) => factor(pair) !== null);
    const order = (key) => [...new Set(known.map((pair) => pair[key]))].sort((a, b) =>
      (data.blocks[b].role === "comm") - (data.blocks[a].role === "comm") || a - b);
    return { run, alone, factor, known, rows: order("block"), columns: order("beside") };
  }).filter((heat) => heat.known.length > 0);
  if (heats.length === 0) return;
  const draw = (heat, width) => {
    const cell = (block, beside) => {
      const pair = heat.known.find((one) => one.block === block && one.beside === beside);
      if (!pair) return null;
      const factor = heat.factor(pair);
      const times = [["with it", pair.with_ns], ["without it", pair.without_ns], ["alone", pair.alone_ns]];
      return { fill: factor >= 1 ? "var(--hot)" : "var(--cold)", strength: strength(factor), text: factor.toFixed(2),
        tip: [named(data.blocks[block]), `beside ${named(data.blocks[beside])}: ${factor.toFixed(3)} x ${heat.alone ? "alone" : "without it"}`,
          ...times.filter(([, ns]) => ns !== null).map(([name, ns]) => `${name} ${time(ns)}`),
          `${pair.with} executions; it is there for ${(pair.beside_pct ?? 0).toFixed(0)} % of the time`].join("\n") };
    };
    const left = Math.min(200, width * 0.36);
    const names = heat.columns.map((block) => short(data.blocks[block]));
    const slanted = Math.min(84, 10 + Math.max(...names.map((name) => name.length)) * 4.6);
    return el("div", { class: "sideways", tabindex: "0" }, matrix({
      title: `Who slows whom down, ${data.runs[heat.run].role}`, axis: "", width, left,
      description: "A row the block that is looked at, a column the one beside it; the data is in the table below.", slanted,
      rows: heat.rows.map((block) => short(data.blocks[block])), columns: names,
      cell: { most: 46, least: 36, height: 22 }, cells: heat.rows.map((block) => heat.columns.map((beside) => cell(block, beside))) }));
  };
  section("heat", scaleLegend([["var(--cold)", 0.8, "0.5x or less"], ["var(--cold)", 0, "1x"], ["var(--hot)", strength(1.25), "1.25x"], ["var(--hot)", strength(1.5), "1.5x"], ["var(--hot)", 0.8, "2x or more"]]),
    panelsOf(heats, draw, { broad: heats.some((heat) => heat.columns.length > 6),
      note: (heat) => `against its time ${heat.alone ? "alone" : "without that neighbour"}` }),
    behind("interference", ["Run", "Block", "Beside", "Its time (%)", "Executions with", "With (ms)", "Without (ms)", "Alone (ms)", "With / alone", "With / without"], () =>
      data.interference.map((pair) => [data.runs[pair.run].role, named(data.blocks[pair.block]), named(data.blocks[pair.beside]), number(pair.beside_pct, 1), pair.with,
        ...[pair.with_ns, pair.without_ns, pair.alone_ns].map((ns) => (ns === null ? null : shown(ns, ms(ns)))), number(pair.against_alone, 3), number(pair.against_without, 3)])));
}
function waits() {
  const some = data.waits.filter((wait) => wait.ranks.length > 1);
  if (some.length === 0) return;
  // Each run has a scale of its own: a capture with a late rank would leave its replay without any colour.
  const longest = (wait) => Math.max(1, ...wait.wait_ns.flat().filter((ns) => ns !== null));
  const draw = (wait, width, most = longest(wait)) => matrix({
    title: `Waiting of each rank in each step, ${data.runs[wait.run].role}`, width, left: 64,
    axis: wait.a_column > 1 ? `step, a column the mean of ${wait.a_column}` : "step", description: "A row a rank, a column a step; the data is in the table below.",
    rows: wait.ranks.map((rank) => `rank ${rank}`), columns: wait.wait_ns[0].map((_, n) => n * wait.a_column + 1), cell: { most: 40, height: 20, label: 34 },
    cells: wait.wait_ns.map((row, rank) => row.map((ns, step) => ns === null ? null : {
      fill: "var(--heat)", strength: 0.9 * (ns / most), tip: `rank ${wait.ranks[rank]}, step ${step * wait.a_column + 1}\nwaits ${time(ns)}\nover all steps last in ${wait.last[rank][0]} of ${wait.last[rank][1]} calls` })),
  });
  section("waits", scaleLegend([["var(--heat)", 0, "no wait"], ["var(--heat)", 0.45, "half of"], ["var(--heat)", 0.9, "the longest wait of the run"]]),
    panelsOf(some, draw, { note: (wait) => `longest wait ${time(longest(wait))}` }),
    ...some.filter((wait) => wait.left_out > 0).map((wait) => el("p", { class: "note" },
      `${data.runs[wait.run].role}: of ${wait.ranks.length + wait.left_out} ranks those are drawn that came last most often; the table waits has all.`)),
    behind("waits", ["Run", "Rank", "Step", "Wait (ms)"], () => some.flatMap((wait) => wait.wait_ns.flatMap((row, rank) =>
      row.map((ns, step) => [data.runs[wait.run].role, wait.ranks[rank], step * wait.a_column + 1, ns === null ? null : shown(ns, ms(ns))])))));
}

function exchanged() {
  if (data.bytes.length === 0) return;
  const most = Math.max(1, ...data.bytes.flatMap((one) => one.bytes.flatMap((row, from) => row.filter((_, to) => to !== from))));
  // As `12`, or of several ranks that share a row `24 to 27`.
  const ranks = (one, row) => {
    const [from, to] = [row * one.ranks_a_row, Math.min((row + 1) * one.ranks_a_row - 1, one.last)];
    return from === to ? `${from}` : `${from} to ${to}`;
  };
  const inside = (one) => (one.ranks_a_row > 1 ? ", inside these ranks" : ", inside the rank");
  const draw = (one, width) => matrix({
    title: `Bytes of all-to-alls from rank to rank, ${data.runs[one.run].role}`, axis: `to rank; ${one.executions} executions in the step`, width, left: one.ranks_a_row > 1 ? 130 : 84,
    description: "A row a sender, a column a receiver; the data is in the table below.",
    rows: one.bytes.map((_, row) => `from rank ${ranks(one, row)}`), columns: one.bytes.map((_, row) => row * one.ranks_a_row), cell: { most: 96, height: one.bytes.length > 32 ? 12 : 26 },
    cells: one.bytes.map((row, from) => row.map((value, to) => ({
      fill: "var(--heat)", strength: from === to ? 0 : 0.7 * (value / most), text: bytes(value),
      tip: `rank ${ranks(one, from)} to rank ${ranks(one, to)}${from === to ? inside(one) : ""}\n${bytes(value)} (${value} B)` }))),
  });
  section("bytes", scaleLegend([["var(--heat)", 0, "0"], ["var(--heat)", 0.35, bytes(most / 2)], ["var(--heat)", 0.7, bytes(most)]]), panelsOf(data.bytes, draw),
    behind("bytes from rank to rank", ["Run", "From", "To", "Bytes"], () => data.bytes.flatMap((one) => one.bytes.flatMap((row, from) =>
      row.map((value, to) => [data.runs[one.run].role, one.ranks_a_row > 1 ? ranks(one, from) : from, one.ranks_a_row > 1 ? ranks(one, to) : to, value])))));
}
