//! A YAML tree in which every node knows where it stands, and the readers that take it apart with good errors.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{Spanned, budget::BudgetBreach};

use crate::{Dtype, Error, FACTORS, MOST_BYTES, MOST_COUNT, Place, Result, check, parse_bytes, parse_duration};

/// A value with its position.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub place: Place,
    pub value: Value,
}

#[derive(Clone, Debug)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Int(i128),
    Float(f64),
    Text(String),
    List(Vec<Node>),
    Map(Vec<(Key, Node)>),
}

/// A key of a map with its position.
#[derive(Clone, Debug)]
pub(super) struct Key {
    pub place: Place,
    pub name: String,
}

/// How deep lists and maps may nest in the text: 19 loops written in place. A level takes up to 32 KiB of stack in
/// development builds, and threads have 2 MiB.
const MOST_DEEP: usize = 40;

/// Parses text into a tree.
pub(super) fn parse(text: &str) -> Result<Node> {
    // Every value takes a byte at least, and half of what the parser counts are ends of lists and maps. So no text
    // breaches these by its own length, only by aliases that stand for more than they are; a few of those are welcome.
    let values = text.len().saturating_mul(2).max(250_000);
    let options = serde_saphyr::options! {
        // YAML 1.1 takes `y`, `no` and `on` for truth values; a block or axis may well be called so.
        strict_booleans: true,
        budget: serde_saphyr::budget! {
            max_nodes: values,
            max_events: values.saturating_mul(2),
            max_total_scalar_bytes: text.len().saturating_mul(2).max(64 << 20),
            max_depth: MOST_DEEP,
            // One list of factors may serve every block.
            enforce_alias_anchor_ratio: false,
        },
    };
    serde_saphyr::from_str_with_options::<Node>(text, options).map_err(|error| explained(&error, text))
}

/// The parser's error in one line of our own words.
fn explained(error: &serde_saphyr::Error, text: &str) -> Error {
    use serde_saphyr::Error as Yaml;
    let place = error.location().map(|at| Place::new(at.line() as u32, at.column() as u32)).unwrap_or_default();
    let mut cause = error.without_snippet();
    while let Yaml::AliasError { error, .. } = cause {
        cause = error.without_snippet();
    }
    match cause {
        Yaml::Budget { breach: BudgetBreach::Depth { .. }, .. } => {
            return Error::at(place, format!("lists and maps nest more than {MOST_DEEP} deep"))
                .help("make motifs of the inner sequences");
        }
        // No text is too large by itself, see `parse`.
        Yaml::Budget { .. }
        | Yaml::AliasReplayCounterOverflow { .. }
        | Yaml::AliasReplayLimitExceeded { .. }
        | Yaml::AliasExpansionLimitExceeded { .. }
        | Yaml::AliasReplayStackDepthExceeded { .. } => {
            return Error::at(place, "the anchors (`&x`) and aliases (`*x`) of this text stand for too many values")
                .help("use fewer, or write the values out");
        }
        Yaml::MultipleDocuments { .. } => {
            return Error::at(place, "a second YAML document begins here").help("a pattern is one; remove the `---`");
        }
        _ => {}
    }
    // The parser's own sentence repeats the position and may carry a snippet of several lines; ours is one line.
    let message = error.without_snippet().to_string();
    let message = message.lines().next().unwrap_or("not YAML").trim_end_matches('.').to_owned();
    let message = match message.split_once(" at line ") {
        Some((what, _)) => what.to_owned(),
        None => message,
    };
    let message = match message.split_once(": ") {
        Some((position, what)) if position.starts_with("error: line ") || position.starts_with("line ") => {
            what.to_owned()
        }
        _ => message,
    };
    // What the parser advises its own callers is no use to a writer of patterns.
    let message = message.split(", set ").next().unwrap_or(&message).to_owned();
    let line = place.position().and_then(|(line, _)| text.lines().nth(line.saturating_sub(1) as usize));
    let bare = line.and_then(bare_reference);
    Error::at(place, message).help(match bare {
        Some(reference) => format!("if {reference} is a reference, quote it: \"{reference}\""),
        None => "a pattern is one YAML document; docs/PATTERN.md shows the format".to_owned(),
    })
}

/// A reference such as `gather[-1]` that stands without quotes: inside `[...]` and `{...}` brackets mean a list.
fn bare_reference(line: &str) -> Option<&str> {
    let named = |c: char| c.is_alphanumeric() || "_-./:".contains(c);
    line.match_indices("[-").find_map(|(at, _)| {
        let start =
            line[..at].rfind(|c| !named(c)).map_or(0, |i| i + line[i..].chars().next().map_or(1, char::len_utf8));
        let length = line[at..].find(']')?;
        let quoted = line[..start].ends_with(['"', '\'']);
        (start < at && !quoted).then(|| &line[start..=at + length])
    })
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let spanned = Spanned::<Value>::deserialize(deserializer)?;
        Ok(Self { place: place(&spanned.referenced), value: spanned.value })
    }
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let spanned = Spanned::<String>::deserialize(deserializer)?;
        Ok(Self { place: place(&spanned.referenced), name: spanned.value })
    }
}

fn place(location: &serde_saphyr::Location) -> Place {
    Place::new(location.line() as u32, location.column() as u32)
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_unit<E>(self) -> std::result::Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> std::result::Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> std::result::Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> std::result::Result<Value, E> {
        Ok(Value::Int(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> std::result::Result<Value, E> {
        Ok(Value::Int(value.into()))
    }

    fn visit_i128<E>(self, value: i128) -> std::result::Result<Value, E> {
        Ok(Value::Int(value))
    }

    fn visit_f64<E>(self, value: f64) -> std::result::Result<Value, E> {
        Ok(Value::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> std::result::Result<Value, E> {
        Ok(Value::Text(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> std::result::Result<Value, E> {
        Ok(Value::Text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> std::result::Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(node) = seq.next_element::<Node>()? {
            list.push(node);
        }
        Ok(Value::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry::<Key, Node>()? {
            entries.push(entry);
        }
        Ok(Value::Map(entries))
    }
}

impl Node {
    fn kind(&self) -> &'static str {
        match self.value {
            Value::Null => "nothing",
            Value::Bool(_) => "a truth value",
            Value::Int(_) => "a number",
            Value::Float(_) => "a fraction",
            Value::Text(_) => "text",
            Value::List(_) => "a list",
            Value::Map(_) => "a map",
        }
    }

    /// "`what` must be `wanted`, not a list".
    pub fn wrong(&self, what: &str, wanted: &str) -> Error {
        let shown = match &self.value {
            Value::Text(text) => format!("`{text}`"),
            Value::Int(number) => format!("`{number}`"),
            Value::Float(number) => format!("`{number}`"),
            _ => self.kind().to_owned(),
        };
        Error::at(self.place, format!("{what} must be {wanted}, not {shown}"))
    }

    /// A map whose keys are all among `known`.
    pub fn fields<'a>(&'a self, what: &'a str, known: &[&str]) -> Result<Fields<'a>> {
        let entries = self.entries(what)?;
        for (key, _) in entries {
            if !known.contains(&key.name.as_str()) {
                return Err(Error::at(key.place, format!("unknown key `{}` in {what}", key.name))
                    .nearest(&key.name, known.iter().copied()));
            }
        }
        Ok(Fields { what, place: self.place, entries })
    }

    /// The entries of a map; nothing is the empty map, as in `lanes:` or `compute: {}`.
    pub fn entries(&self, what: &str) -> Result<&[(Key, Node)]> {
        match &self.value {
            Value::Map(entries) => Ok(entries),
            Value::Null => Ok(&[]),
            _ => Err(self.wrong(what, "a map")),
        }
    }

    pub fn list(&self, what: &str) -> Result<&[Node]> {
        match &self.value {
            Value::List(list) => Ok(list),
            Value::Null => Ok(&[]),
            _ => Err(self.wrong(what, "a list")),
        }
    }

    /// Text, or a number written where a name may stand.
    pub fn text(&self, what: &str) -> Result<String> {
        match &self.value {
            Value::Text(text) => Ok(text.clone()),
            Value::Int(number) => Ok(number.to_string()),
            _ => Err(self.wrong(what, "text")),
        }
    }

    /// A name; see [`check::name`].
    pub fn name(&self, what: &str) -> Result<String> {
        let text = self.text(what)?;
        check::name(self.place, what, &text)?;
        Ok(text)
    }

    pub fn bool(&self, what: &str) -> Result<bool> {
        match self.value {
            Value::Bool(value) => Ok(value),
            _ => Err(self.wrong(what, "true or false")),
        }
    }

    pub fn integer<T: TryFrom<i128>>(&self, what: &str) -> Result<T> {
        let Value::Int(number) = self.value else { return Err(self.wrong(what, "a whole number")) };
        T::try_from(number).map_err(|_| self.wrong(what, "a whole number in its range"))
    }

    pub fn number(&self, what: &str) -> Result<f64> {
        match self.value {
            Value::Int(number) => Ok(number as f64),
            Value::Float(number) if number.is_finite() => Ok(number),
            _ => Err(self.wrong(what, "a number")),
        }
    }

    /// A count of at least 1; bounded, so that products of counts and sizes stay countable.
    pub fn count(&self, what: &str) -> Result<u64> {
        match self.value {
            Value::Int(number) if (1..=i128::from(MOST_COUNT)).contains(&number) => Ok(number as u64),
            _ => Err(self.wrong(what, &format!("a whole number from 1 to {MOST_COUNT}"))),
        }
    }

    /// A list of factors.
    pub fn factors(&self, what: &str) -> Result<Vec<f64>> {
        self.list(what)?
            .iter()
            .map(|node| match node.number(what)? {
                factor if FACTORS.contains(&factor) => Ok(factor),
                _ => Err(node.wrong(what, "a factor from 0.000001 to 1000000")),
            })
            .collect()
    }

    pub fn bytes(&self, what: &str) -> Result<u64> {
        const WANTED: &str = "a size such as 4194304, 64MiB or 1.2GB, at most 1024TiB";
        match &self.value {
            Value::Int(_) => {
                self.integer(what).ok().filter(|bytes| *bytes <= MOST_BYTES).ok_or_else(|| self.wrong(what, WANTED))
            }
            Value::Text(text) => parse_bytes(text).ok_or_else(|| self.wrong(what, WANTED)),
            _ => Err(self.wrong(what, WANTED)),
        }
    }

    pub fn duration(&self, what: &str) -> Result<u64> {
        const WANTED: &str = "a duration such as 42us, 1.5ms or 800ns, at most 104 days";
        match &self.value {
            Value::Text(text) => parse_duration(text).ok_or_else(|| self.wrong(what, WANTED)),
            _ => Err(self.wrong(what, WANTED)),
        }
    }

    pub fn dtype(&self, what: &str) -> Result<Dtype> {
        self.one_of(what, Dtype::from_name, Dtype::ALL.map(Dtype::name))
    }

    /// One of a closed set of words.
    pub fn one_of<T, const N: usize>(
        &self,
        what: &str,
        from_name: impl Fn(&str) -> Option<T>,
        names: [&'static str; N],
    ) -> Result<T> {
        let text = self.text(what)?;
        from_name(&text)
            .ok_or_else(|| Error::at(self.place, format!("{what} cannot be `{text}`")).nearest(&text, names))
    }
}

/// The fields of a map that has been checked for unknown keys.
pub(super) struct Fields<'a> {
    what: &'a str,
    place: Place,
    entries: &'a [(Key, Node)],
}

impl<'a> Fields<'a> {
    pub fn get(&self, name: &str) -> Option<&'a Node> {
        self.entries.iter().find(|(key, _)| key.name == name).map(|(_, node)| node)
    }

    pub fn need(&self, name: &str) -> Result<&'a Node> {
        self.get(name).ok_or_else(|| {
            Error::at(self.place, format!("{} lacks `{name}`", self.what)).help(format!("add {name}: ..."))
        })
    }

    /// The one key of `names` that stands here.
    pub fn only(&self, names: &[&'static str], help: &str) -> Result<(&'static str, &'a Key, &'a Node)> {
        let mut found = None;
        for (key, node) in self.entries {
            let Some(name) = names.iter().find(|name| **name == key.name) else { continue };
            if let Some((first, _, _)) = found {
                return Err(Error::at(key.place, format!("{} has both `{first}` and `{name}`", self.what)).help(help));
            }
            found = Some((*name, key, node));
        }
        found.ok_or_else(|| {
            Error::at(self.place, format!("{} does nothing", self.what))
                .help(format!("{help}: one of {}", names.join(", ")))
        })
    }
}
