//! Writes the one canonical text of a pattern: a line a block or item where it fits a reader's eye, the keys in the
//! order of the documentation, nothing that is a default.

use std::fmt::Write;

use crate::{
    AxisShape, Block, Body, Collective, CollectiveKind, CommSettings, Direction, GemmLayout, Item, Kernel, Pattern,
    Priority, ReduceOp, Reference, Selector, Step, When, Work, format_bytes, format_duration,
};

/// Writes `pattern`.
pub(crate) fn write(pattern: &Pattern) -> String {
    let mut out = String::new();
    line(&mut out, 0, "maestro: 1");
    line(&mut out, 0, &format!("name: {}", scalar(&pattern.name)));
    if let Some(source) = &pattern.source {
        let mut map = Flow::map();
        map.put("format", scalar(&source.format));
        map.put("files", source.files);
        map.maybe("step", source.step.as_deref().map(scalar));
        map.maybe("step_us", source.step_ns.map(microseconds));
        map.maybe("device", source.device.as_deref().map(scalar));
        line(&mut out, 0, &format!("source: {}", map.end()));
    }
    section(&mut out, "axes", &pattern.axes, |out, axis| {
        let mut map = Flow::map();
        match &axis.shape {
            AxisShape::Size(size) => map.put("size", size),
            AxisShape::Teams(teams) => map.put("teams", list(teams.iter().map(|team| list(team.iter())))),
        }
        settings(&mut map, &axis.settings);
        line(out, 1, &format!("{}: {}", axis.name, map.end()));
    });
    section(&mut out, "blocks", &pattern.blocks, block);
    section(&mut out, "lanes", &pattern.lanes, |out, lane| {
        let mut map = Flow::map();
        if lane.priority != Priority::Normal {
            map.put("priority", lane.priority.name());
        }
        settings(&mut map, &lane.settings);
        line(out, 1, &format!("{}: {}", lane.name, map.end()));
    });
    section(&mut out, "motifs", &pattern.motifs, |out, motif| {
        line(out, 1, &format!("{}:", motif.name));
        items(out, 2, &motif.items);
    });
    if pattern.roles.is_empty() {
        line(&mut out, 0, "schedule:");
        items(&mut out, 1, &pattern.schedule);
    }
    section(&mut out, "roles", &pattern.roles, |out, role| {
        line(out, 1, &format!("{}:", role.name));
        line(out, 2, &format!("when: {}", when(&role.when)));
        line(out, 2, "schedule:");
        items(out, 3, &role.schedule);
    });
    if !pattern.host_skew.is_empty() {
        line(&mut out, 0, &format!("host_skew: {}", list(pattern.host_skew.iter())));
    }
    section(&mut out, "assumed", &pattern.assumed, |out, assumption| {
        let mut map = Flow::map();
        map.put("what", quoted(&assumption.what));
        map.put("confidence", assumption.confidence.name());
        if !assumption.blocks.is_empty() {
            map.put("blocks", list(assumption.blocks.iter().map(|name| scalar(name))));
        }
        line(out, 1, &format!("- {}", map.end()));
    });
    out
}

fn section<T>(out: &mut String, name: &str, all: &[T], mut each: impl FnMut(&mut String, &T)) {
    if all.is_empty() {
        return;
    }
    line(out, 0, &format!("{name}:"));
    for one in all {
        each(out, one);
    }
}

fn line(out: &mut String, depth: usize, text: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(out, "{:indent$}{text}", "", indent = 2 * depth);
}

fn settings(map: &mut Flow, settings: &CommSettings) {
    map.maybe("min_ctas", settings.min_ctas);
    map.maybe("max_ctas", settings.max_ctas);
    map.maybe("cga_cluster_size", settings.cga_cluster_size);
    map.maybe("split_share", settings.split_share);
    map.maybe("traffic_class", settings.traffic_class);
    map.maybe("algorithm", settings.algorithm.as_deref().map(scalar));
    map.maybe("protocol", settings.protocol.as_deref().map(scalar));
    map.maybe("nvls", settings.nvls);
    map.maybe("sharp", settings.sharp);
}

/// A block that fits takes one line, whatever is in it; a list that does not fit takes a line an entry.
fn block(out: &mut String, block: &Block) {
    let listed = |entries: &[String]| format!("[{}]", entries.join(", "));
    let (key, entries, one) = match &block.work {
        Work::P2p { transfers, .. } => {
            let entries: Vec<String> = transfers.iter().map(transfer).collect();
            let one = listed(&entries);
            ("p2p", entries, one)
        }
        Work::Group(all) => {
            let each = all.iter().map(|c| format!("{{{}: {}}}", c.kind.name(), collective(c)));
            let entries: Vec<String> = each.collect();
            let one = listed(&entries);
            ("group", entries, one)
        }
        Work::Compute(kernels) => match kernels.as_slice() {
            [one @ (Kernel::Copy { times: 1, .. } | Kernel::Set { times: 1, .. })] => {
                let (key, body) = plain_kernel(one);
                (key, Vec::new(), body)
            }
            _ => {
                let entries: Vec<String> = kernels.iter().map(kernel).collect();
                let one = listed(&entries);
                ("compute", entries, one)
            }
        },
        Work::Collective(c) => (c.kind.name(), Vec::new(), collective(c)),
        Work::Cuda(cuda) => {
            let mut body = Flow::map();
            body.put("source", scalar(&cuda.source));
            body.put("entry", scalar(&cuda.entry));
            body.put("grid", list(cuda.grid.iter()));
            body.put("threads", list(cuda.threads.iter()));
            ("kernel", Vec::new(), body.end())
        }
    };
    let mut more = Flow::map();
    if let Work::P2p { wrap: true, .. } = block.work {
        more.put("wrap", true);
    }
    more.maybe("captured", block.captured_ns.map(format_duration));
    more.maybe("idle", (block.idle_ns > 0).then(|| format_duration(block.idle_ns)));
    more.maybe("skew", (!block.skew.is_empty()).then(|| list(block.skew.iter())));
    let mut flow = Flow::map();
    flow.put(key, one);
    flow.0.extend(more.0.iter().cloned());
    let flow = format!("{}: {}", block.name, flow.end());
    if entries.is_empty() || flow.len() + 2 <= WIDTH {
        return line(out, 1, &flow);
    }
    line(out, 1, &format!("{}:", block.name));
    line(out, 2, &format!("{key}:"));
    for entry in entries {
        line(out, 3, &format!("- {entry}"));
    }
    for value in more.0 {
        line(out, 2, &value);
    }
}

/// Columns of a line that need not be broken.
const WIDTH: usize = 120;

fn collective(c: &Collective) -> String {
    let mut map = Flow::map();
    if c.kind != CollectiveKind::Barrier {
        map.put("size", c.size.map_or("unknown".to_owned(), format_bytes));
        map.put("dtype", c.dtype.name());
    }
    if c.kind.reduces() && c.op != ReduceOp::Sum {
        map.put("op", c.op.name());
    }
    if c.kind.rooted() && c.root != 0 {
        map.put("root", c.root);
    }
    if c.in_place {
        map.put("in_place", true);
    }
    if !c.splits.is_empty() {
        map.put("splits", list(c.splits.iter().map(|row| list(row.iter()))));
    }
    map.end()
}

fn transfer(transfer: &crate::Transfer) -> String {
    let (key, peer) = match transfer.direction {
        Direction::Send => ("send", "to"),
        Direction::Recv => ("recv", "from"),
    };
    let mut body = Flow::map();
    body.put(peer, transfer.offset);
    body.put("size", format_bytes(transfer.size));
    body.put("dtype", transfer.dtype.name());
    format!("{{{key}: {}}}", body.end())
}

fn kernel(kernel: &Kernel) -> String {
    let mut map = Flow::map();
    let (key, body) = plain_kernel(kernel);
    map.put(key, body);
    let times = match *kernel {
        Kernel::Hold { sms, times, .. } => {
            map.maybe("sms", sms);
            times
        }
        Kernel::Memory { lasts_ns, times, .. } => {
            map.maybe("lasts", lasts_ns.map(format_duration));
            times
        }
        Kernel::Gemm { times, .. } | Kernel::Copy { times, .. } | Kernel::Set { times, .. } => times,
    };
    if times != 1 {
        map.put("times", times);
    }
    map.end()
}

fn plain_kernel(kernel: &Kernel) -> (&'static str, String) {
    match *kernel {
        Kernel::Gemm { m, n, k, batch, dtype, layout, .. } => {
            let mut body = Flow::map();
            body.put("m", m);
            body.put("n", n);
            body.put("k", k);
            if batch != 1 {
                body.put("batch", batch);
            }
            body.put("dtype", dtype.name());
            if layout != GemmLayout::default() {
                body.put("layout", layout.name());
            }
            ("gemm", body.end())
        }
        Kernel::Memory { bytes, .. } => ("memory", format_bytes(bytes)),
        Kernel::Hold { duration_ns, .. } => ("hold", format_duration(duration_ns)),
        Kernel::Copy { direction, size, .. } => ("copy", format!("{{{}: {}}}", direction.name(), format_bytes(size))),
        Kernel::Set { size, .. } => ("set", format_bytes(size)),
    }
}

fn items(out: &mut String, depth: usize, all: &[Item]) {
    for item in all {
        let mut map = Flow::map();
        match &item.step {
            Step::Run { block, on, lane, label, after } => {
                map.put("run", block);
                map.maybe("on", on.as_ref());
                map.maybe("lane", lane.as_ref());
                map.maybe("as", label.as_ref());
                if !after.is_empty() {
                    map.put("after", list(after.iter().map(reference)));
                }
            }
            Step::Host(ns) => map.put("host", format_duration(*ns)),
            Step::Wait(all) => match all.as_slice() {
                [one] => map.put("wait", reference(one)),
                many => map.put("wait", list(many.iter().map(reference))),
            },
            Step::Repeat { times, body: Body::Motif(name) } => {
                if *times != 1 {
                    map.put("repeat", times);
                }
                map.put("do", name);
            }
            Step::Repeat { times, body: Body::Inline(inner) } => {
                line(out, depth, &format!("- repeat: {times}"));
                if !item.when.0.is_empty() {
                    line(out, depth + 1, &format!("when: {}", when(&item.when)));
                }
                line(out, depth + 1, "do:");
                items(out, depth + 2, inner);
                continue;
            }
        }
        if !item.when.0.is_empty() {
            map.put("when", when(&item.when));
        }
        line(out, depth, &format!("- {}", map.end()));
    }
}

fn reference(reference: &Reference) -> String {
    match reference.back {
        0 => reference.label.clone(),
        back => quoted(&format!("{}[-{back}]", reference.label)),
    }
}

fn when(when: &When) -> String {
    let mut map = Flow::map();
    for (axis, selector) in &when.0 {
        let text = match selector {
            Selector::First => "first".to_owned(),
            Selector::Last => "last".to_owned(),
            Selector::NotFirst => "not first".to_owned(),
            Selector::NotLast => "not last".to_owned(),
            Selector::These(all) => match all.as_slice() {
                [one] => one.to_string(),
                many => list(many.iter()),
            },
        };
        map.put(axis, text);
    }
    map.end()
}

/// Nanoseconds as a plain decimal number of microseconds.
fn microseconds(ns: u64) -> String {
    let text = format!("{}.{:03}", ns / 1000, ns % 1000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn list<T: ToString>(all: impl Iterator<Item = T>) -> String {
    format!("[{}]", all.map(|one| one.to_string()).collect::<Vec<_>>().join(", "))
}

/// Text as a plain scalar where that reads back as the same text inside a flow collection, quoted otherwise.
fn scalar(text: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "_-./+() #".contains(c);
    let starts = text.chars().next().is_some_and(char::is_alphabetic);
    let word = ["true", "false", "null", "inf", "nan"];
    if starts
        && text.chars().all(plain)
        && !text.contains(" #")
        && !text.ends_with(' ')
        && !word.contains(&text.to_ascii_lowercase().as_str())
    {
        return text.to_owned();
    }
    quoted(text)
}

/// Text in double quotes, escaped as YAML (and JSON) want it.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// A map on one line.
struct Flow(Vec<String>);

impl Flow {
    fn map() -> Self {
        Self(Vec::new())
    }

    fn put(&mut self, key: &str, value: impl ToString) {
        self.0.push(format!("{key}: {}", value.to_string()));
    }

    fn maybe<T: ToString>(&mut self, key: &str, value: Option<T>) {
        if let Some(value) = value {
            self.put(key, value);
        }
    }

    fn end(self) -> String {
        format!("{{{}}}", self.0.join(", "))
    }
}
