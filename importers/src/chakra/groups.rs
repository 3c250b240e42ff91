//! The list of process groups: a JSON text inside a Python list, in the inputs of a metadata node.

use serde::Deserialize;

use super::proto::{GROUPS, Node};
use crate::Notes;
use crate::capture::ProcessGroup;

/// Whether a node lists the process groups.
pub(super) fn lists(node: &Node) -> bool {
    node.name == GROUPS || node.name.contains("process_group:init")
}

#[derive(Deserialize)]
struct Group {
    pg_name: Name,
    #[serde(default)]
    pg_desc: String,
    #[serde(default)]
    ranks: Vec<u32>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Name {
    Text(String),
    Number(u64),
}

/// The groups that a node lists.
pub(super) fn read(node: &Node, notes: &mut Notes) -> Vec<ProcessGroup> {
    let Some(inputs) = &node.inputs else { return Vec::new() };
    let text = inputs.values.as_str();
    let inside =
        text.find("[{").zip(text.rfind("}]")).filter(|(from, to)| from < to).map(|(from, to)| &text[from..to + 2]);
    // Python escapes quotes and backslashes of the text inside its own.
    let unescaped = |text: &str| text.replace("\\'", "'").replace("\\\"", "\"").replace("\\\\", "\\");
    let groups: Option<Vec<Group>> = inside
        .and_then(|inside| serde_json::from_str(inside).or_else(|_| serde_json::from_str(&unescaped(inside))).ok());
    let Some(groups) = groups else {
        notes.add("lists of process groups that cannot be read", || text.chars().take(100).collect());
        return Vec::new();
    };
    let group = |group: Group| {
        let name = match group.pg_name {
            Name::Text(name) => name,
            Name::Number(number) => number.to_string(),
        };
        ProcessGroup { name, desc: group.pg_desc, ranks: group.ranks }
    };
    groups.into_iter().map(group).collect()
}
