"""What must hold of a page in a browser. Each check raises AssertionError with what it found."""

import json

import cases


def sections(browser, name, _):
    """What the data has is drawn, what it lacks is not shown."""
    data = browser.js("JSON.parse(document.getElementById('data').textContent)")
    has = {
        "timeline": bool(data["timelines"]),
        "waterfall": bool(data["waterfalls"]),
        "blocks": True,
        "distributions": any(curve["n"] > 1 for curve in data["distributions"]),
        "bandwidth": bool(data["bandwidth"]),
        "waits": any(len(wait["ranks"]) > 1 for wait in data["waits"]),
        "bytes": bool(data["bytes"]),
        "method": True,
    }
    if name == "sweep":
        points = data["sweep"]["points"]
        assert [(point["x"], point["panel"]) for point in points] == [
            (size, f"axis.ep.max_ctas={ctas}") for size in [4096, 16384, 65536, 262144, 1048576] for ctas in [4, 8]], points
    has["sweep"] = data["sweep"] is not None
    for section, there in has.items():
        shown = browser.js(f"!document.getElementById('{section}').hidden")
        assert shown == there, f"section {section} is {'shown' if shown else 'hidden'}"
        if there and section not in ("blocks", "method"):
            assert browser.js(f"document.querySelectorAll('#{section} svg[role=img]').length") > 0, f"{section} has no drawing"
    if name == "before-over-after":
        assert all(there for section, there in has.items() if section != "sweep"), f"this page was meant to have everything: {has}"
        assert "heat" in browser.js("[...document.querySelectorAll('main > section:not([hidden])')].map((s) => s.id)")
    shown = browser.js("document.getElementById('verdicts') !== null")
    assert shown == (data["verdicts"] is not None) == (name == "verdicts"), "verdicts on a page without a comparison, or none on one with"
    if shown:
        assert browser.js("document.querySelectorAll('#verdicts svg[role=img] g').length") == len(data["verdicts"]) > 1
        tables = browser.js("[...document.querySelectorAll('#verdicts table caption')].map((c) => c.textContent)")
        assert tables == ["Verdicts", "Gate"], tables
    for fall in data["waterfalls"]:
        parts = sum(fall["exposed_ns"]) + sum(fall[k] for k in ["compute_ns", "copies_ns", "idle_ns", "shorter_ns"])
        assert parts == fall["step_ns"], f"parts of {parts} ns are not a step of {fall['step_ns']} ns"


def drawn(browser, *_):
    """No drawing holds a number that is none, and all have a title for those who do not see them."""
    broken = browser.js("[...document.querySelectorAll('svg *')].flatMap((e) => [...e.attributes].map((a) => a.value))"
                        ".filter((v) => /NaN|undefined|Infinity/.test(v)).slice(0, 3)")
    assert not broken, f"drawn with {broken}"
    text = browser.js("document.querySelector('main').innerText")
    for word in ["NaN", "undefined", "[object"]:
        assert word not in text, f"the page says {word}"
    untitled = browser.js("[...document.querySelectorAll('svg[role=img]')].filter((s) => !s.querySelector('title')?.textContent).length")
    assert untitled == 0, f"{untitled} drawings have no title"


def column(browser, n):
    return browser.js(f"[...document.querySelectorAll('#blocks tbody tr')].map((r) => r.cells[{n}].dataset.v)")


def index_of(browser, heading):
    heads = browser.js("[...document.querySelectorAll('#blocks thead th')].map((h) => h.textContent)")
    return heads.index(heading)


def assert_sorted(values, descending):
    there = [float(v) for v in values if v != ""]
    assert there == sorted(there, reverse=descending), f"not sorted: {values}"
    assert values[len(there):] == [""] * (len(values) - len(there)), f"what is missing is not last: {values}"


def sorts_by_click(browser, *_):
    n = index_of(browser, "Avg lat (ms)")
    before = column(browser, n)
    button = f"#blocks thead th:nth-child({n + 1}) button"
    browser.click(button)
    after = column(browser, n)
    assert sorted(before) == sorted(after), "rows were lost"
    assert_sorted(after, descending=True)
    assert browser.js(f"document.querySelector('{button}').parentElement.getAttribute('aria-sort')") == "descending"
    browser.click(button)
    assert_sorted(column(browser, n), descending=False)
    assert browser.js("document.querySelectorAll('#blocks th[aria-sort]').length") == 1


def sorts_by_keyboard(browser, *_):
    n = index_of(browser, "Size (B)")
    browser.js(f"document.querySelector('#blocks thead th:nth-child({n}) button').focus()")
    browser.press("Tab", 9)
    assert browser.js("document.activeElement.textContent") == "Size (B)", "Tab does not go from heading to heading"
    browser.press("Enter", 13, "\r")
    assert_sorted(column(browser, n), descending=True)


def zooms_by_keyboard(browser, *_):
    if browser.js("document.getElementById('timeline').hidden"):
        return
    said = "document.querySelector('#timeline .tools span').textContent"
    whole = browser.js(said)
    browser.js("document.querySelector('#timeline .plot').focus()")
    browser.press("+", 187, "+")
    nearer = browser.js(said)
    assert nearer != whole, "+ does not zoom"
    browser.press("ArrowRight", 39)
    assert browser.js(said) != nearer, "the arrow does not move"
    browser.press("0", 48, "0")
    assert browser.js(said) == whole, "0 does not show all again"


def tells_under_the_pointer(browser, *_):
    """A tip over the longest execution of the first lane; dragging over a stretch shows it larger."""
    if browser.js("document.getElementById('timeline').hidden"):
        return
    browser.js("document.querySelector('#timeline .plot').scrollIntoView({block: 'center'})")
    x, y, width = browser.js("(() => { const b = [...document.querySelectorAll('#timeline .plot path')].map((p) => p.getBoundingClientRect())"
                             ".reduce((a, b) => (b.width > a.width ? b : a)); return [b.x, b.y + b.height / 2, b.width]; })()")
    # Somewhere on this lane something runs.
    tips = []
    for share in range(1, 20):
        browser.move(x + width * share / 20, y)
        tips.append(browser.js("(() => { const t = document.getElementById('tip'); return t.hidden ? '' : t.textContent; })()"))
    assert any("rank" in tip and "lane" in tip for tip in tips), f"no tip on the lane: {tips}"
    said = "document.querySelector('#timeline .tools span').textContent"
    whole = browser.js(said)
    browser.drag(x + width * 0.3, x + width * 0.6, y)
    assert browser.js(said) != whole, "dragging does not zoom"
    browser.click("#timeline .tools button:last-of-type")
    assert browser.js(said) == whole, "All does not show all again"


def opens_the_data(browser, *_):
    """The table behind each drawing appears when it is opened, and has rows."""
    rows = browser.js("""(async () => {
        const all = [...document.querySelectorAll('details.data')];
        all.forEach((d) => { d.open = true; });
        await new Promise((done) => setTimeout(done, 50));
        const rows = all.map((d) => d.querySelectorAll('tbody tr').length);
        all.forEach((d) => { d.open = false; });
        return rows; })()""")
    assert all(n > 0 for n in rows), f"rows of the tables behind: {rows}"


def switches_theme(browser, *_):
    colour = "getComputedStyle(document.documentElement).backgroundColor"
    light = browser.js(colour)
    browser.click("#theme")
    dark = browser.js(colour)
    assert light != dark, "the switch changes nothing"
    browser.click("#theme")
    assert browser.js(colour) == light


CONTRAST = """(() => {
  const parse = (c) => c.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255).map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (e) => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c[3] !== 0) return c; } return [255, 255, 255]; };
  const bad = [];
  for (const e of document.querySelectorAll('body *')) {
    if (e.closest('[hidden], svg, .hidden, .skip, script') || ![...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim())) continue;
    const [a, b] = [light(parse(getComputedStyle(e).color)), light(behind(e))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) bad.push(`${e.tagName} "${e.textContent.trim().slice(0, 30)}" ${ratio.toFixed(2)}`);
  }
  return bad.slice(0, 5);
})()"""


def contrast(browser, *_):
    """WCAG AA, 4.5 to 1, of all text outside drawings."""
    bad = browser.js(CONTRAST)
    assert not bad, f"too little contrast: {bad}"


def fits(browser, *_):
    """Nothing but boxes that scroll by themselves is broader than the window."""
    over = browser.js("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert over <= 0, f"the page is {over} px broader than the window"


def harmless(browser, name, _):
    assert browser.js("window.hacked") is None, "a name ran as a script"
    assert browser.js("document.querySelectorAll('main img, main script, main [onerror], main [onfocus], table b').length") == 0
    if name == "hostile":
        text = browser.js("document.body.textContent")
        for part in [cases.IMAGE, cases.SCRIPT, cases.QUOTE]:
            assert text.count(part) > 1, f"{part} is not there as text"


def small(_, name, path):
    size = path.stat().st_size
    assert size < 3_000_000, f"{size} bytes"
    if name == "eight-ranks":
        assert json.loads(path.read_text().split('id="data">')[1].split("</script>")[0])["waits"][0]["ranks"] == list(range(8))


LIGHT = [sections, drawn, sorts_by_click, sorts_by_keyboard, zooms_by_keyboard, tells_under_the_pointer, opens_the_data, switches_theme, contrast, harmless, small, fits]
DARK = [drawn, contrast]
NARROW = [drawn, fits]
