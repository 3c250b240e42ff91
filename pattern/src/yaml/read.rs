//! Reads the frame of a pattern: source, axes, lanes, motifs, roles, assumptions.

use super::node::{Fields, Key, Node, Value, parse};
use super::{read_block, read_item};
use crate::{
    Assumption, Axis, AxisShape, CommSettings, Confidence, Error, Lane, Motif, Pattern, Priority, Result, Role, Source,
    check,
};

/// Keys of a pattern, in the order in which they are written.
const KEYS: [&str; 11] =
    ["maestro", "name", "source", "axes", "blocks", "lanes", "motifs", "schedule", "roles", "host_skew", "assumed"];

const SETTINGS: [&str; 9] = [
    "min_ctas",
    "max_ctas",
    "cga_cluster_size",
    "split_share",
    "traffic_class",
    "algorithm",
    "protocol",
    "nvls",
    "sharp",
];

/// Reads a pattern, one level above [`Pattern::from_yaml`]: names are not resolved yet.
pub(crate) fn read(text: &str) -> Result<Pattern> {
    let root = parse(text)?;
    version(&root)?;
    let fields = root.fields("the pattern", &KEYS)?;
    let pattern = Pattern {
        name: fields.need("name")?.text("the pattern's name")?,
        source: fields.get("source").map(source).transpose()?,
        axes: named(&fields, "axes", axis)?,
        blocks: named(&fields, "blocks", read_block::block)?,
        lanes: named(&fields, "lanes", lane)?,
        motifs: named(&fields, "motifs", motif)?,
        schedule: fields
            .get("schedule")
            .map(|node| read_item::items(node, "the schedule"))
            .transpose()?
            .unwrap_or_default(),
        roles: named(&fields, "roles", role)?,
        host_skew: fields.get("host_skew").map(|node| node.factors("host_skew")).transpose()?.unwrap_or_default(),
        assumed: Vec::new(),
    };
    let pattern = Pattern { assumed: assumed(&fields, &pattern)?, ..pattern };
    match (fields.get("schedule"), fields.get("roles")) {
        (None, None) => Err(Error::at(root.place, "the pattern has neither a schedule nor roles")
            .help("add schedule: with a list of items")),
        (Some(_), Some(roles)) => Err(Error::at(roles.place, "the pattern has both a schedule and roles")
            .help("roles carry their own schedules; keep one of the two")),
        _ => Ok(pattern),
    }
}

/// The format version is checked before anything else, so that a newer file says so instead of "unknown key".
fn version(root: &Node) -> Result<()> {
    let entries = root.entries("a pattern")?;
    let Some((_, version)) = entries.iter().find(|(key, _)| key.name == "maestro") else {
        return Err(Error::at(root.place, "this is no Maestro pattern: it lacks `maestro`")
            .help("a pattern begins with maestro: 1"));
    };
    match version.value {
        Value::Int(1) => Ok(()),
        _ => Err(version.wrong("the format version", "1").help("this Maestro reads version 1")),
    }
}

/// Reads a map of named things.
fn named<T>(fields: &Fields<'_>, key: &'static str, read: impl Fn(&Key, &Node) -> Result<T>) -> Result<Vec<T>> {
    let Some(node) = fields.get(key) else { return Ok(Vec::new()) };
    let entries = node.entries(key)?;
    entries
        .iter()
        .map(|(key_node, node)| {
            check::name(key_node.place, &format!("an entry of {key}"), &key_node.name)?;
            read(key_node, node)
        })
        .collect()
}

fn source(node: &Node) -> Result<Source> {
    let fields = node.fields("source", &["format", "files", "step", "step_us", "device"])?;
    let step_ns = match fields.get("step_us") {
        None => None,
        Some(us) => {
            let value = us.number("source.step_us")?;
            if !(0.0..1e15).contains(&value) {
                return Err(us.wrong("source.step_us", "microseconds"));
            }
            Some((value * 1e3).round() as u64)
        }
    };
    Ok(Source {
        format: fields.need("format")?.text("source.format")?,
        files: fields.need("files")?.integer("source.files")?,
        step: fields.get("step").map(|n| n.text("source.step")).transpose()?,
        step_ns,
        device: fields.get("device").map(|n| n.text("source.device")).transpose()?,
    })
}

fn axis(key: &Key, node: &Node) -> Result<Axis> {
    let what = format!("axis `{}`", key.name);
    let mut known = vec!["size", "teams"];
    known.extend(SETTINGS);
    let fields = node.fields(&what, &known)?;
    let (which, _, shape) = fields.only(&["size", "teams"], "an axis has a size or lists its teams")?;
    let shape = match which {
        "size" => AxisShape::Size(shape.integer(&format!("the size of {what}"))?),
        _ => AxisShape::Teams(
            shape
                .list(&format!("the teams of {what}"))?
                .iter()
                .map(|team| {
                    team.list(&format!("a team of {what}"))?.iter().map(|rank| rank.integer("a rank")).collect()
                })
                .collect::<Result<_>>()?,
        ),
    };
    Ok(Axis { name: key.name.clone(), shape, settings: settings(&fields, &what)?, place: key.place })
}

fn lane(key: &Key, node: &Node) -> Result<Lane> {
    let what = format!("lane `{}`", key.name);
    let mut known = vec!["priority"];
    known.extend(SETTINGS);
    let fields = node.fields(&what, &known)?;
    let priority = match fields.get("priority") {
        None => Priority::Normal,
        Some(node) => urgency(node, &what)?,
    };
    Ok(Lane { name: key.name.clone(), priority, settings: settings(&fields, &what)?, place: key.place })
}

/// One setting of an axis, or with `priority` of a lane: what a map that holds `key` alone would say.
pub(crate) fn setting(what: &str, key: &str, value: &str, priority: bool) -> Result<(Option<Priority>, CommSettings)> {
    let node = parse(&format!("{key}: {value}"))?;
    let known: Vec<&str> = SETTINGS.into_iter().chain(priority.then_some("priority")).collect();
    let fields = node.fields(what, &known)?;
    let priority = fields.get("priority").map(|node| urgency(node, what)).transpose()?;
    Ok((priority, settings(&fields, what)?))
}

fn urgency(node: &Node, what: &str) -> Result<Priority> {
    node.one_of(
        &format!("the priority of {what}"),
        |name| Priority::ALL.into_iter().find(|p| p.name() == name),
        Priority::ALL.map(Priority::name),
    )
}

fn settings(fields: &Fields<'_>, what: &str) -> Result<CommSettings> {
    let of = |name: &str| format!("{name} of {what}");
    let number = |name: &str| fields.get(name).map(|n| n.integer(&of(name))).transpose();
    let text = |name: &str| fields.get(name).map(|n| n.text(&of(name))).transpose();
    let truth = |name: &str| fields.get(name).map(|n| n.bool(&of(name))).transpose();
    Ok(CommSettings {
        min_ctas: number("min_ctas")?,
        max_ctas: number("max_ctas")?,
        cga_cluster_size: number("cga_cluster_size")?,
        split_share: truth("split_share")?,
        traffic_class: number("traffic_class")?,
        algorithm: text("algorithm")?,
        protocol: text("protocol")?,
        nvls: truth("nvls")?,
        sharp: truth("sharp")?,
    })
}

fn motif(key: &Key, node: &Node) -> Result<Motif> {
    let items = read_item::items(node, &format!("motif `{}`", key.name))?;
    Ok(Motif { name: key.name.clone(), items, place: key.place })
}

fn role(key: &Key, node: &Node) -> Result<Role> {
    let what = format!("role `{}`", key.name);
    let fields = node.fields(&what, &["when", "schedule"])?;
    Ok(Role {
        name: key.name.clone(),
        when: read_item::when(fields.need("when")?)?,
        schedule: read_item::items(fields.need("schedule")?, &format!("the schedule of {what}"))?,
        place: key.place,
    })
}

fn assumed(fields: &Fields<'_>, pattern: &Pattern) -> Result<Vec<Assumption>> {
    let Some(node) = fields.get("assumed") else { return Ok(Vec::new()) };
    node.list("assumed")?
        .iter()
        .map(|node| {
            let fields = node.fields("an assumption", &["what", "confidence", "blocks"])?;
            let blocks = fields.get("blocks").map(|node| about(node, pattern)).transpose()?.unwrap_or_default();
            Ok(Assumption {
                what: fields.need("what")?.text("what is assumed")?,
                confidence: fields.need("confidence")?.one_of(
                    "confidence",
                    |name| Confidence::ALL.into_iter().find(|c| c.name() == name),
                    Confidence::ALL.map(Confidence::name),
                )?,
                blocks,
            })
        })
        .collect()
}

/// The blocks that an assumption is about.
fn about(node: &Node, pattern: &Pattern) -> Result<Vec<String>> {
    let known = || pattern.blocks.iter().map(|block| block.name.as_str());
    let name = |node: &Node| {
        let name = node.text("a block of an assumption")?;
        if known().any(|known| known == name) {
            return Ok(name);
        }
        Err(Error::at(node.place, format!("no block is named `{name}`, which something is assumed of"))
            .nearest(&name, known()))
    };
    node.list("the blocks of an assumption")?.iter().map(name).collect()
}
