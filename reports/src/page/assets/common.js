// What all drawings share: elements, numbers as text, scales, legends, tips. Text is only ever set as text.

const data = JSON.parse(document.getElementById("data").textContent);

const el = (name, attributes = {}, ...children) => fill(document.createElement(name), attributes, children);
const svg = (name, attributes = {}, ...children) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);

function fill(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) element.setAttribute(key, value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

// Nanoseconds as people read them beside `most`, so that all numbers of one scale have one unit.
function time(ns, most = ns) {
  const [unit, size] = most >= 1e9 ? ["s", 1e9] : most >= 1e6 ? ["ms", 1e6] : most >= 1e3 ? ["µs", 1e3] : ["ns", 1];
  return `${digits(ns / size)} ${unit}`;
}
function digits(value) {
  const size = Math.abs(value);
  return value.toFixed(size === 0 || size >= 1000 ? 0 : size >= 100 ? 1 : size >= 10 ? 2 : 3);
}
const ms = (ns) => (ns / 1e6).toFixed(3);
function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (value >= 1023.95 && unit < units.length - 1) { value /= 1024; unit += 1; }
  return `${unit === 0 ? value : value.toFixed(value < 10 || value % 1 ? 1 : 0).replace(/\.0$/, "")} ${units[unit]}`;
}

const kinds = ["all_gather", "reduce_scatter", "all_reduce", "all_to_all", "p2p"];
const colour = (block) =>
  block.role !== "comm" ? `var(--${block.role})` : kinds.includes(block.kind) ? `var(--${block.kind})` : "var(--other)";
const named = (block) => (block.axis ? `${block.name} on ${block.axis}` : block.name);
// Only where a block runs on several axes does the axis tell its rows apart.
const short = (block) =>
  data.blocks.filter((other) => other.name === block.name).length > 1 ? named(block) : block.name;

// Round numbers from `from` to `to`, about `count` of them.
function ticks(from, to, count) {
  const rough = (to - from) / Math.max(count, 1) || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const factor = [1, 2, 5, 10].findIndex((one) => one * power >= rough * 0.999);
  const every = (step) => {
    const all = [];
    for (let n = Math.ceil(from / step - 1e-9); n * step <= to * (1 + 1e-9); n += 1) all.push(n * step);
    return all;
  };
  const all = every(power * [1, 2, 5, 10][factor]);
  // One tick is no scale.
  return all.length > 1 ? all : every(power * [0.5, 1, 2, 5][factor]);
}
const decimals = (step) => Math.max(0, -Math.floor(Math.log10(step) + 1e-9));

const sum = (values) => values.reduce((total, value) => total + value, 0);
const widthOf = (element) => Math.max(240, Math.floor(element.clientWidth));

// A text cut to about `width` pixels of 12 px type, in its middle, since names often differ at their ends; the whole of
// it as a tip.
function label(x, y, text, width, attributes = {}) {
  const most = Math.max(3, Math.floor(width / 6.4));
  const tail = Math.floor((most - 1) * 0.4);
  const cut = text.length > most ? `${text.slice(0, most - 1 - tail)}…${text.slice(text.length - tail)}` : text;
  return svg("text", { x, y, ...attributes }, cut, cut === text ? null : svg("title", {}, text));
}

let figures = 0;
// A drawing with its title and description for those who do not see it.
function drawing(width, height, title, description, ...children) {
  const id = `figure-${(figures += 1)}`;
  return svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-labelledby": `${id}-t ${id}-d` },
    svg("title", { id: `${id}-t` }, title), svg("desc", { id: `${id}-d` }, description), ...children);
}

function hatching(id) {
  return svg("pattern", { id, width: 5, height: 5, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
    svg("rect", { width: 2.2, height: 5, style: "fill: var(--hatch)", "fill-opacity": 0.85 }));
}

function legend(items) {
  return el("ul", { class: "legend" }, ...items.map(([mark, text]) =>
    el("li", {}, svg("svg", { width: 22, height: 12, viewBox: "0 0 22 12", "aria-hidden": "true" }, ...[mark].flat()), text)));
}
const swatch = (fill) => svg("rect", { x: 3, y: 1, width: 16, height: 10, rx: 2, style: `fill: ${fill}` });

// The table behind a drawing, made when it is opened.
function behind(title, heads, rows) {
  const details = el("details", { class: "data" }, el("summary", {}, `Data: ${title}`));
  details.addEventListener("toggle", () => {
    if (details.open && details.children.length === 1) details.append(tableOf(title, heads, rows()));
  });
  return details;
}
function tableOf(title, heads, rows) {
  const numeric = (cell) => typeof cell === "number" || cell === null;
  const right = heads.map((_, column) => rows.length > 0 && rows.every((row) => numeric(row[column]?.v ?? row[column])));
  const cell = (value, column) => {
    const [text, raw] = value && value.v !== undefined ? [value.t, value.v] : [value ?? "-", value ?? ""];
    return el(column === 0 ? "th" : "td", { class: right[column] ? "num" : null, scope: column === 0 ? "row" : null, "data-v": raw }, String(text));
  };
  const table = el("table", { class: "sortable" }, el("caption", { class: "hidden" }, title),
    el("thead", {}, el("tr", {}, ...heads.map((head, column) =>
      el("th", { scope: "col", class: right[column] ? "num" : null }, el("button", { type: "button" }, head))))),
    el("tbody", {}, ...rows.map((row) => el("tr", {}, ...row.map(cell)))));
  sortable(table);
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": title }, table);
}
// A number with the text that people see.
const shown = (v, t) => ({ v, t });
const number = (value, places) => (value === null ? null : shown(value, value.toFixed(places)));

const tip = document.getElementById("tip");
function showTip(event, text) {
  tip.textContent = text;
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  const left = event.clientX + 14 + width > innerWidth ? event.clientX - 14 - width : event.clientX + 14;
  const top = event.clientY + 16 + height > innerHeight ? event.clientY - 12 - height : event.clientY + 16;
  tip.style.left = `${Math.max(4, left)}px`;
  tip.style.top = `${Math.max(4, top)}px`;
}
const hideTip = () => { tip.hidden = true; };

// A section is shown once it has something to show.
function section(id, ...children) {
  const element = document.getElementById(id);
  element.append(...children);
  element.hidden = false;
  return element;
}
// Draws now and whenever the width changes.
const redraws = [];
function responsive(box, draw) {
  let last = 0;
  const redraw = () => {
    const width = widthOf(box);
    if (width === last) return;
    last = width;
    box.replaceChildren(draw(width));
  };
  redraws.push(redraw);
  return box;
}
