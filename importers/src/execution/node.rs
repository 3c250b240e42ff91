//! A node of an execution trace, in any of the schemas.
//!
//! Up to 1.0.1 a node is flat; then inputs and outputs are objects of values, shapes and types; from 1.1.0 on named
//! attributes say what before only the positions of inputs did. Those are [tensors, sequence, group, rank, operation,
//! input splits, output splits, ...], the tensors missing from calls that have none, so that positions count from the
//! operation: the last string.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::Group;
use crate::Notes;
use crate::capture::{CommFacts, CommOp};
use crate::kineto::comm::{Element, element, is_bracket, op, scaled};

/// A communication call.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub id: u64,
    /// Links it to a row of the profile; `None`: not recorded, written as 0.
    pub function_id: Option<u64>,
    pub thread: i64,
    pub facts: CommFacts,
}

/// A node as it stands. What is not needed of most nodes is not taken apart.
#[derive(Deserialize)]
pub(super) struct RawNode {
    name: Option<Box<RawValue>>,
    id: Option<Box<RawValue>>,
    rf_id: Option<Box<RawValue>>,
    tid: Option<Box<RawValue>>,
    inputs: Option<Box<RawValue>>,
    input_shapes: Option<Box<RawValue>>,
    input_types: Option<Box<RawValue>>,
    outputs: Option<Box<RawValue>>,
    output_shapes: Option<Box<RawValue>>,
    attrs: Option<Box<RawValue>>,
}

impl RawNode {
    fn named(&self, name: &str) -> bool {
        let text = self.name.as_ref().map_or("", |raw| raw.get());
        text.strip_prefix('"').and_then(|text| text.strip_suffix('"')) == Some(name)
    }

    /// Whether it lists the process groups.
    pub(super) fn is_group_list(&self) -> bool {
        self.named("## process_group:init ##")
    }

    /// Names and ranks of the groups that it lists; those of all ranks list none.
    pub(super) fn groups(&self) -> Vec<(String, Vec<u32>)> {
        let inputs = self.inputs().0;
        let Some(Value::String(text)) = inputs.first() else { return Vec::new() };
        let groups: Vec<Value> = serde_json::from_str(text).unwrap_or_default();
        let groups = groups.into_iter().filter_map(|group| serde_json::from_value::<Group>(group).ok());
        groups.filter(|group| !group.ranks.is_empty()).map(|group| (group.pg_name, group.ranks)).collect()
    }

    /// The communication call that it is, if any.
    pub(super) fn read(&self, notes: &mut Notes) -> Option<Node> {
        if !self.named("record_param_comms") {
            return None;
        }
        let attributes = Attributes(parsed(&self.attrs));
        let number = |raw: &Option<Box<RawValue>>, name| whole(&parsed(raw)).or_else(|| whole(attributes.get(name)?));
        let (values, shapes, types) = self.inputs();
        let at = values.iter().rposition(|value| matches!(value, Value::String(_)));
        let positional = |from_operation: isize| at.and_then(|at| values.get(at.checked_add_signed(from_operation)?));
        let name = attributes.text("collective_name").or_else(|| positional(0)?.as_str()).unwrap_or_default();
        if is_bracket(name) {
            return None;
        }
        let mut facts = CommFacts::new(op(name), name.into());
        // With tensors, four values stand before the operation.
        let tensors = at.filter(|at| *at == 4).and(shapes.first());
        let kind = attributes.text("dtype").or_else(|| tensor_type(types.first()?.as_str()?)).unwrap_or_default();
        let Element { numbers, .. } = match element(kind) {
            Some(element) => {
                facts.dtype = Some(element.dtype);
                facts.stands_for = element.stands.then(|| kind.into());
                element
            }
            None => Element { dtype: maestro_pattern::Dtype::U8, numbers: 1, stands: false },
        };
        // Counts of coalesced calls may be those of one tensor only: shapes are of all.
        let count = |name, shapes: Option<&Value>| {
            let told = attributes.get(name).and_then(whole).unwrap_or(0);
            let seen = shapes.map_or(0, elements);
            let one = told == 0 || facts.recorded_name.contains("coalesced");
            (if one { told.max(seen) } else { told }).saturating_mul(numbers)
        };
        let outputs = self.output_shapes();
        let (ins, outs) = (count("in_msg_nelems", tensors), count("out_msg_nelems", tensors.and(outputs.first())));
        (facts.in_elements, facts.out_elements) = (ins, outs);
        facts.in_splits = scaled(list(attributes.get("in_split_size").or_else(|| positional(1))), ins, notes);
        facts.out_splits = scaled(list(attributes.get("out_split_size").or_else(|| positional(2))), outs, notes);
        facts.group_name = attributes.text("pg_name").or_else(|| group_name(positional(-2)?)).map(Into::into);
        facts.group_size = attributes.get("pg_size").or_else(|| positional(5)).and_then(whole).and_then(narrow);
        if matches!(facts.op, CommOp::Send { .. } | CommOp::Recv { .. }) {
            facts.group_peer = positional(-1).and_then(whole).and_then(narrow);
        }
        Some(Node {
            id: number(&self.id, "id")?,
            function_id: number(&self.rf_id, "rf_id").filter(|id| *id != 0),
            thread: number(&self.tid, "tid").unwrap_or(0) as i64,
            facts,
        })
    }

    /// Values, shapes and types of the inputs.
    fn inputs(&self) -> (Vec<Value>, Vec<Value>, Vec<Value>) {
        match parsed(&self.inputs) {
            Value::Object(mut inputs) => {
                let mut take = |key| array(inputs.remove(key).unwrap_or_default());
                (take("values"), take("shapes"), take("types"))
            }
            flat => (array(flat), array(parsed(&self.input_shapes)), array(parsed(&self.input_types))),
        }
    }

    fn output_shapes(&self) -> Vec<Value> {
        match parsed(&self.outputs) {
            Value::Object(mut outputs) => array(outputs.remove("shapes").unwrap_or_default()),
            _ => array(parsed(&self.output_shapes)),
        }
    }
}

/// Named attributes: `[{"name": ..., "type": ..., "value": ...}]`.
struct Attributes(Value);

impl Attributes {
    fn get(&self, name: &str) -> Option<&Value> {
        let all = self.0.as_array()?;
        all.iter().find(|attribute| attribute["name"] == name).map(|attribute| &attribute["value"])
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.get(name)?.as_str().filter(|text| !text.is_empty())
    }
}

fn parsed(raw: &Option<Box<RawValue>>) -> Value {
    raw.as_ref().and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default()
}

fn array(value: Value) -> Vec<Value> {
    match value {
        Value::Array(items) => items,
        _ => Vec::new(),
    }
}

/// A whole number, in quotes or not.
fn whole(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

fn narrow(number: u64) -> Option<u32> {
    u32::try_from(number).ok()
}

/// A list of whole numbers, or a text that holds one; anything else is empty.
fn list(value: Option<&Value>) -> Vec<u64> {
    let parsed = match value {
        Some(Value::String(text)) => serde_json::from_str(text).unwrap_or_default(),
        Some(value) => value.clone(),
        None => Value::Null,
    };
    let items = array(parsed);
    items.iter().map(Value::as_u64).collect::<Option<_>>().unwrap_or_default()
}

/// Elements of a shape, or of all shapes of a list.
fn elements(shape: &Value) -> u64 {
    let Value::Array(sides) = shape else { return 0 };
    if sides.first().is_some_and(Value::is_array) {
        return sides.iter().map(elements).fold(0, u64::saturating_add);
    }
    if sides.is_empty() {
        return 0;
    }
    sides.iter().try_fold(1u64, |product, side| product.checked_mul(side.as_u64()?)).unwrap_or(0)
}

/// `Tensor(float)`, `GenericList[Tensor(c10::BFloat16),...]` -> the type inside.
fn tensor_type(text: &str) -> Option<&str> {
    let (_, inside) = text.split_once("Tensor(")?;
    inside.split_once(')').map(|(kind, _)| kind)
}

/// `["name", "description"]`, or the name alone.
fn group_name(value: &Value) -> Option<&str> {
    value.as_str().or_else(|| value.get(0)?.as_str()).filter(|name| !name.is_empty())
}
