// One step of each run, one below the other on the same scale. A lane is few paths, not thousands of elements: what is
// under the pointer is found in the data.

function timelines() {
  if (data.timelines.length === 0) return;
  const all = data.timelines.map((line) => ({
    ...line,
    ranks: line.ranks.map((rank) => ({ ...rank, lanes: rank.lanes.map(unpack) })),
  }));
  const end = Math.max(...all.flatMap((line) => line.ranks.map(endOf)));
  // From the moment at which the iteration began, unless nothing ran for long.
  const first = Math.min(...all.flatMap((line) => line.ranks.map(beginOf)));
  const begin = first < end / 50 ? 0 : first;
  const ranks = [...new Set(all.flatMap((line) => line.ranks.map((rank) => rank.rank)))].sort((a, b) => a - b);
  const last = all[all.length - 1];
  const longest = last.ranks.reduce((a, b) => (endOf(b) - beginOf(b) > endOf(a) - beginOf(a) ? b : a)).rank;
  const view = { from: begin, to: end, rank: ranks.length > 2 ? longest : null };

  const box = el("div", { class: "plot", tabindex: "0", role: "application", "aria-roledescription": "timeline",
    "aria-label": "Timelines of one step. Plus and minus zoom, arrows move, 0 shows all." });
  const range = el("span", { "aria-live": "polite" });
  let hits = [];
  const draw = () => {
    const width = widthOf(box);
    const drawn = timelineDrawing(all, view, width);
    hits = drawn.hits;
    box.replaceChildren(drawn.element);
    range.textContent = `${time(view.from, end)} to ${time(view.to, end)}`;
  };
  const look = (from, to) => {
    const width = Math.min(Math.max(to - from, (end - begin) / 5000), end - begin);
    view.from = Math.min(Math.max(from, begin), end - width);
    view.to = view.from + width;
    draw();
  };
  const zoom = (factor, centre = (view.from + view.to) / 2) =>
    look(centre - (centre - view.from) * factor, centre + (view.to - centre) * factor);
  const move = (share) => look(view.from + share * (view.to - view.from), view.to + share * (view.to - view.from));

  const button = (text, name, act) => {
    const it = el("button", { type: "button", "aria-label": name, title: name }, text);
    it.addEventListener("click", act);
    return it;
  };
  const tools = el("div", { class: "tools" });
  if (ranks.length > 1) {
    const choose = el("select", {}, el("option", { value: "" }, `all ${ranks.length} ranks`),
      ...ranks.map((rank) => el("option", { value: rank }, `rank ${rank}${rank === longest ? " (longest)" : ""}`)));
    choose.value = view.rank ?? "";
    choose.addEventListener("change", () => { view.rank = choose.value === "" ? null : Number(choose.value); draw(); });
    tools.append(el("label", {}, "Ranks ", choose));
  }
  tools.append(button("+", "Zoom in", () => zoom(0.5)), button("−", "Zoom out", () => zoom(2)),
    button("◀", "Earlier", () => move(-0.25)), button("▶", "Later", () => move(0.25)),
    button("All", "Show the whole step", () => look(begin, end)), range);
  const keys = { "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), ArrowLeft: () => move(-0.25),
    ArrowRight: () => move(0.25), 0: () => look(begin, end) };
  box.addEventListener("keydown", (event) => {
    if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    keys[event.key]();
  });
  pointing(box, view, () => hits, look);

  const used = new Set(all.flatMap((line) => line.ranks.flatMap((rank) => rank.lanes.flatMap((lane) => lane.runs.map((run) => run.block)))));
  section("timeline", timelineLegend([...used].map((index) => data.blocks[index])), tools, box,
    ...all.filter((line) => line.left_out).map((line) => el("p", { class: "note" }, `${data.runs[line.run].role}: ${line.left_out}`)),
    behind("executions of these steps", ["Run", "Rank", "Lane", "Block", "Axis", "Start (ms)", "End (ms)", "Wait (ms)", "Exposed (ms)"], () =>
      all.flatMap((line) => line.ranks.flatMap((rank) => rank.lanes.flatMap((lane) => lane.runs.map((run) => {
        const block = data.blocks[run.block];
        return [data.runs[line.run].role, rank.rank, lane.name, block.name, block.axis ?? "-", shown(run.start, ms(run.start)),
          shown(run.end, ms(run.end)), shown(run.wait, ms(run.wait)), shown(exposedOf(run, rank), ms(exposedOf(run, rank)))];
      }))))));
  redraws.push(draw);
}

function unpack(lane) {
  const runs = [];
  let start = 0;
  for (let i = 0; i < lane.runs.length; i += 4) {
    start += lane.runs[i + 1];
    runs.push({ block: lane.runs[i], start, end: start + lane.runs[i + 2], wait: lane.runs[i + 3] });
  }
  return { name: lane.name, runs };
}
const endOf = (rank) => Math.max(...rank.lanes.map((lane) => lane.runs.reduce((most, run) => Math.max(most, run.end), 0)));
const beginOf = (rank) => Math.min(...rank.lanes.map((lane) => lane.runs[0].start));
function exposedOf(run, rank) {
  if (data.blocks[run.block].role !== "comm") return 0;
  return sum(cuts(run, rank.exposed).map(([from, to]) => to - from));
}
// The parts of `run` in `intervals`, which are starts and ends in turns.
function cuts(run, intervals) {
  // The first that ends after the run has begun, by halves: there are thousands, and as many runs.
  let [low, high] = [0, intervals.length / 2];
  while (low < high) {
    const half = (low + high) >> 1;
    if (intervals[2 * half + 1] <= run.start) low = half + 1;
    else high = half;
  }
  const parts = [];
  for (let i = 2 * low; i < intervals.length && intervals[i] < run.end; i += 2) {
    const [from, to] = [Math.max(intervals[i], run.start), Math.min(intervals[i + 1], run.end)];
    if (from < to) parts.push([from, to]);
  }
  return parts;
}

function timelineLegend(blocks) {
  const fills = new Map();
  for (const block of blocks) {
    const fillOf = colour(block);
    const kind = block.role === "comm" ? block.kind : block.role === "copy" ? "copy, set" : "compute";
    if (!fills.has(fillOf)) fills.set(fillOf, new Set());
    fills.get(fillOf).add(kind);
  }
  const items = [...fills].map(([fillOf, names]) => [swatch(fillOf), [...names].join(", ")]);
  const comm = colour(blocks.find((block) => block.role === "comm") ?? blocks[0]);
  items.push([[svg("defs", {}, hatching("hatch-legend")), swatch(comm),
    svg("rect", { x: 3, y: 1, width: 16, height: 10, rx: 2, fill: "url(#hatch-legend)" })], "exposed"]);
  items.push([svg("rect", { x: 3, y: 1, width: 16, height: 10, rx: 2, style: `fill: ${comm}`, "fill-opacity": 0.35 }), "waiting for a rank"]);
  return legend(items);
}

function timelineDrawing(all, view, width) {
  const left = width < 560 ? 74 : 132;
  const height = { lane: 20, gap: 3, title: 22 };
  const x = (ns) => left + ((ns - view.from) / (view.to - view.from)) * (width - left - 8);
  const parts = [svg("defs", {}, hatching("hatch"),
    svg("clipPath", { id: "inside" }, svg("rect", { x: left, y: 0, width: width - left - 8, height: 9999 })))];
  const hits = [];
  const most = ticks(view.from, view.to, Math.max(3, Math.floor((width - left) / 110)));
  let y = 4;
  for (const line of all) {
    for (const rank of line.ranks.filter((rank) => view.rank === null || rank.rank === view.rank)) {
      const span = time(endOf(rank) - beginOf(rank));
      parts.push(label(0, y + 14, `${data.runs[line.run].role} · rank ${rank.rank} · ${span}`, width, { class: "strong" }));
      y += height.title;
      for (const lane of rank.lanes) {
        parts.push(label(0, y + 14, lane.name, left - 10, { class: "soft" }),
          svg("rect", { x: left, y, width: width - left - 8, height: height.lane, class: "lane" }),
          ...lanePaths(lane, rank, view, x, y, height.lane));
        hits.push({ y, height: height.lane, lane, rank, run: line.run });
        y += height.lane + height.gap;
      }
      parts.push(...most.map((ns) => svg("line", { x1: x(ns), x2: x(ns), y1: y - rank.lanes.length * (height.lane + height.gap), y2: y, class: "over" })));
      y += 8;
    }
  }
  const unit = view.to >= 1e6 ? ["ms", 1e6] : ["µs", 1e3];
  const places = decimals((most[1] - most[0]) / unit[1] || 1);
  const marks = most.map((ns) => svg("text", { x: x(ns), y: y + 14, "text-anchor": "middle", class: "soft" },
    `${(ns / unit[1]).toFixed(places)}${ns === most[most.length - 1] ? ` ${unit[0]}` : ""}`));
  const names = all.map((line) => data.runs[line.run].role).join(" over ");
  const element = drawing(width, y + 20, `Timeline of one step: ${names}`, "A row a lane; the data is in the table below.",
    ...parts, svg("line", { x1: left, x2: width - 8, y1: y, y2: y, class: "axis" }), ...marks);
  return { element, hits: hits.map((hit) => ({ ...hit, left, right: width - 8 })) };
}

// The lane as one path for each colour, one for what waits, one for what is exposed.
function lanePaths(lane, rank, view, x, y, height) {
  const paths = new Map();
  let hatched = "";
  const rectangle = (from, to) => {
    // Whatever is shorter than half a pixel is drawn half a pixel wide: it is there.
    const [a, b] = [x(Math.max(from, view.from)), x(Math.min(to, view.to))];
    return `M${a.toFixed(1)} ${y}h${Math.max(0.5, b - a - (b - a > 3 ? 0.6 : 0)).toFixed(1)}v${height}H${a.toFixed(1)}z`;
  };
  for (const run of lane.runs) {
    if (run.end < view.from || run.start > view.to) continue;
    const block = data.blocks[run.block];
    const add = (key, text) => paths.set(key, (paths.get(key) ?? "") + text);
    const moves = run.start + run.wait;
    if (run.wait > 0 && moves >= view.from) add(`${colour(block)}|0.35`, rectangle(run.start, Math.min(moves, run.end)));
    if (moves < run.end && moves <= view.to) add(`${colour(block)}|1`, rectangle(moves, run.end));
    if (block.role === "comm") {
      for (const [from, to] of cuts(run, rank.exposed)) {
        if (to >= view.from && from <= view.to) hatched += rectangle(from, to);
      }
    }
  }
  const drawn = [...paths].map(([key, d]) => {
    const [fillOf, opacity] = key.split("|");
    return svg("path", { d, style: `fill: ${fillOf}`, "fill-opacity": opacity });
  });
  if (hatched) drawn.push(svg("path", { d: hatched, fill: "url(#hatch)" }));
  // Names where they fit, in the colour that is legible on both.
  for (const run of lane.runs) {
    const [a, b] = [x(Math.max(run.start, view.from)), x(Math.min(run.end, view.to))];
    const name = data.blocks[run.block].name;
    const comm = data.blocks[run.block].role === "comm";
    if (b - a < name.length * 6.8 + 10 || (comm && (run.wait > 0 || cuts(run, rank.exposed).length > 0))) continue;
    drawn.push(svg("text", { x: (a + b) / 2, y: y + 14, "text-anchor": "middle", class: comm ? "inverse" : "" }, name));
  }
  return [svg("g", { "clip-path": "url(#inside)" }, ...drawn)];
}

// Tips under the pointer, and dragging over a stretch to see it larger.
function pointing(box, view, hits, look) {
  let from = null;
  const at = (event) => {
    const hit = hits()[0];
    const rectangle = box.querySelector("svg").getBoundingClientRect();
    const scale = rectangle.width / box.querySelector("svg").viewBox.baseVal.width;
    const px = (event.clientX - rectangle.left) / scale;
    return { ns: view.from + ((px - hit.left) / (hit.right - hit.left)) * (view.to - view.from), y: (event.clientY - rectangle.top) / scale };
  };
  box.addEventListener("pointerdown", (event) => {
    if (event.pointerType === "mouse" && event.button === 0 && hits().length) from = at(event).ns;
  });
  const mark = el("div", { class: "selection" });
  box.addEventListener("pointermove", (event) => {
    if (!hits().length) return;
    const { ns, y } = at(event);
    if (from !== null) {
      const { left, right } = hits()[0];
      const place = (of) => left + ((of - view.from) / (view.to - view.from)) * (right - left);
      const [a, b] = [place(from), place(ns)].sort((one, other) => one - other);
      mark.style.left = `${a}px`;
      mark.style.width = `${b - a}px`;
      if (!mark.isConnected) box.append(mark);
    }
    const hit = hits().find((one) => y >= one.y && y <= one.y + one.height);
    const slack = (view.to - view.from) / 800;
    const run = hit?.lane.runs.find((one) => one.start - slack <= ns && ns <= one.end + slack);
    if (run) showTip(event, described(run, hit));
    else hideTip();
  });
  box.addEventListener("pointerup", (event) => {
    if (from === null) return;
    const to = at(event).ns;
    mark.remove();
    if (Math.abs(to - from) > (view.to - view.from) / 60) look(Math.min(from, to), Math.max(from, to));
    from = null;
  });
  box.addEventListener("pointerleave", () => { from = null; mark.remove(); hideTip(); });
}

function described(run, hit) {
  const block = data.blocks[run.block];
  const lines = [named(block), `${data.runs[hit.run].role}, rank ${hit.rank.rank}, lane ${hit.lane.name}`,
    `${time(run.start)} to ${time(run.end)}: ${time(run.end - run.start)}`];
  if (block.role === "comm") {
    lines.push(`waiting ${time(run.wait)}, transfer ${time(run.end - run.start - run.wait)}`, `exposed ${time(exposedOf(run, hit.rank))}`);
  }
  return lines.join("\n");
}
