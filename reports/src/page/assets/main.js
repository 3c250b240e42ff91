// Draws everything that the data has, then lists the sections and listens.

const redrawAll = () => redraws.forEach((redraw) => redraw());

document.querySelectorAll("table.sortable").forEach(sortable);
for (const draw of [verdicts, sweeps, timelines, waterfalls, interference, distributions, bandwidths, waits, exchanged]) draw();
redrawAll();

const contents = document.getElementById("contents");
contents.append(...[...document.querySelectorAll("main > section")].filter((part) => !part.hidden)
  .map((part) => el("a", { href: `#${part.id}` }, part.dataset.short)));
contents.hidden = false;

const theme = document.getElementById("theme");
const preferred = matchMedia("(prefers-color-scheme: dark)");
const dark = () => (document.documentElement.dataset.theme ?? (preferred.matches ? "dark" : "light")) === "dark";
const nameTheme = () => { theme.textContent = dark() ? "Light" : "Dark"; theme.setAttribute("aria-label", `Switch to ${dark() ? "light" : "dark"} colours`); };
theme.addEventListener("click", () => { document.documentElement.dataset.theme = dark() ? "light" : "dark"; nameTheme(); });
preferred.addEventListener("change", nameTheme);
theme.hidden = false;
nameTheme();

let waiting = false;
addEventListener("resize", () => {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => { waiting = false; redrawAll(); });
});
