//! The messages of a Chakra execution trace: MLCommons' schema (package ChakraProtoMsg) by its field numbers.
//!
//! Written by hand, so that no compiler of protocol buffers is needed to build. Enumerations are plain numbers here,
//! because later versions add values; fields and kinds of attributes that are not listed are passed over.

use prost::{Message, Oneof};

/// The first message of a file.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct GlobalMetadata {
    #[prost(string, tag = "1")]
    pub version: String,
    #[prost(message, repeated, tag = "2")]
    pub attr: Vec<Attribute>,
}

/// Every other message of a file.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Node {
    #[prost(uint64, tag = "1")]
    pub id: u64,
    #[prost(string, tag = "2")]
    pub name: String,
    /// See [`node_type`].
    #[prost(int32, tag = "3")]
    pub kind: i32,
    #[prost(uint64, repeated, tag = "4")]
    pub ctrl_deps: Vec<u64>,
    #[prost(uint64, repeated, tag = "5")]
    pub data_deps: Vec<u64>,
    /// No writer that we know of fills it.
    #[prost(uint64, tag = "6")]
    pub start_time_micros: u64,
    #[prost(uint64, tag = "7")]
    pub duration_micros: u64,
    #[prost(message, optional, tag = "8")]
    pub inputs: Option<IoInfo>,
    #[prost(message, optional, tag = "9")]
    pub outputs: Option<IoInfo>,
    #[prost(message, repeated, tag = "10")]
    pub attr: Vec<Attribute>,
}

/// Arguments, each list as Python prints it.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct IoInfo {
    #[prost(string, tag = "1")]
    pub values: String,
    #[prost(string, tag = "2")]
    pub shapes: String,
    #[prost(string, tag = "3")]
    pub types: String,
}

/// Kinds of nodes.
pub(crate) mod node_type {
    pub const METADATA: i32 = 1;
    pub const MEM_LOAD: i32 = 2;
    pub const MEM_STORE: i32 = 3;
    pub const COMP: i32 = 4;
    pub const COMM_SEND: i32 = 5;
    pub const COMM_RECV: i32 = 6;
    pub const COMM_COLL: i32 = 7;
}

/// A named value.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Attribute {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub doc_string: String,
    #[prost(oneof = "Value", tags = "3, 5, 7, 9, 10, 11, 13, 14, 15, 17, 19, 21, 23, 25, 27, 29")]
    pub value: Option<Value>,
}

/// What an attribute holds: the scalars and the lists that anybody writes.
#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum Value {
    #[prost(double, tag = "3")]
    Double(f64),
    #[prost(float, tag = "5")]
    Float(f32),
    #[prost(int32, tag = "7")]
    Int32(i32),
    #[prost(int64, tag = "9")]
    Int64(i64),
    #[prost(message, tag = "10")]
    Int64List(Int64List),
    #[prost(uint32, tag = "11")]
    Uint32(u32),
    #[prost(uint64, tag = "13")]
    Uint64(u64),
    #[prost(message, tag = "14")]
    Uint64List(Uint64List),
    #[prost(sint32, tag = "15")]
    Sint32(i32),
    #[prost(sint64, tag = "17")]
    Sint64(i64),
    #[prost(fixed32, tag = "19")]
    Fixed32(u32),
    #[prost(fixed64, tag = "21")]
    Fixed64(u64),
    #[prost(sfixed32, tag = "23")]
    Sfixed32(i32),
    #[prost(sfixed64, tag = "25")]
    Sfixed64(i64),
    #[prost(bool, tag = "27")]
    Bool(bool),
    #[prost(string, tag = "29")]
    Text(String),
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Int64List {
    #[prost(int64, repeated, tag = "1")]
    pub values: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Uint64List {
    #[prost(uint64, repeated, tag = "1")]
    pub values: Vec<u64>,
}

impl Attribute {
    pub fn new(name: &str, value: Value) -> Self {
        Self { name: name.to_owned(), doc_string: String::new(), value: Some(value) }
    }
}

impl Value {
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    /// The most that fits, of what is beyond.
    pub fn int64(number: u64) -> Self {
        Self::Int64(i64::try_from(number).unwrap_or(i64::MAX))
    }

    pub fn list(numbers: impl IntoIterator<Item = u64>) -> Self {
        let values = numbers.into_iter().map(|number| i64::try_from(number).unwrap_or(i64::MAX)).collect();
        Self::Int64List(Int64List { values })
    }
}

/// The attributes of a message, by name.
pub(crate) struct Attributes<'a>(pub &'a [Attribute]);

impl<'a> Attributes<'a> {
    fn get(&self, name: &str) -> Option<&'a Value> {
        self.0.iter().find(|attribute| attribute.name == name)?.value.as_ref()
    }

    /// A whole number of whatever kind; writers differ.
    pub fn integer(&self, name: &str) -> Option<i64> {
        match self.get(name)? {
            Value::Int32(number) | Value::Sint32(number) | Value::Sfixed32(number) => Some(i64::from(*number)),
            Value::Int64(number) | Value::Sint64(number) | Value::Sfixed64(number) => Some(*number),
            Value::Uint32(number) | Value::Fixed32(number) => Some(i64::from(*number)),
            Value::Uint64(number) | Value::Fixed64(number) => i64::try_from(*number).ok(),
            Value::Bool(truth) => Some(i64::from(*truth)),
            Value::Text(text) => text.trim().parse().ok(),
            Value::Double(_) | Value::Float(_) | Value::Int64List(_) | Value::Uint64List(_) => None,
        }
    }

    /// A whole number that is none below 0.
    pub fn count(&self, name: &str) -> Option<u64> {
        self.integer(name).and_then(|number| u64::try_from(number).ok())
    }

    pub fn narrow(&self, name: &str) -> Option<u32> {
        self.integer(name).and_then(|number| u32::try_from(number).ok())
    }

    /// A text that is not empty; a number is one, too.
    pub fn text(&self, name: &str) -> Option<String> {
        match self.get(name)? {
            Value::Text(text) => Some(text.clone()).filter(|text| !text.is_empty()),
            _ => self.integer(name).map(|number| number.to_string()),
        }
    }

    /// Whole numbers; empty where there are none.
    pub fn list(&self, name: &str) -> Vec<u64> {
        match self.get(name) {
            Some(Value::Int64List(list)) => list.values.iter().map(|value| (*value).max(0) as u64).collect(),
            Some(Value::Uint64List(list)) => list.values.clone(),
            _ => Vec::new(),
        }
    }

    pub fn truth(&self, name: &str) -> bool {
        self.integer(name).is_some_and(|number| number != 0)
    }
}

/// Names of attributes: those of the schema's users, and ours.
pub(crate) mod names {
    pub const IS_CPU_OP: &str = "is_cpu_op";
    pub const COMM_TYPE: &str = "comm_type";
    pub const COMM_SIZE: &str = "comm_size";
    pub const COMM_SRC: &str = "comm_src";
    pub const COMM_DST: &str = "comm_dst";
    pub const COMM_TAG: &str = "comm_tag";
    pub const COMM_PRIORITY: &str = "comm_priority";
    pub const PG_NAME: &str = "pg_name";
    pub const NUM_OPS: &str = "num_ops";
    pub const TENSOR_SIZE: &str = "tensor_size";
    pub const STREAM: &str = "stream";
    pub const TID: &str = "tid";

    pub const RANK: &str = "maestro.rank";
    pub const WORLD: &str = "maestro.world";
    pub const STEP: &str = "maestro.step";
    pub const DEVICE: &str = "maestro.device";
    /// Name of the block, and which execution of it.
    pub const BLOCK: &str = "maestro.block";
    pub const ITERATION: &str = "maestro.iteration";
    pub const LANE: &str = "maestro.lane";
    pub const AXIS: &str = "maestro.axis";
    /// S of nccl-tests in bytes.
    pub const SIZE: &str = "maestro.size";
    pub const DTYPE: &str = "maestro.dtype";
    pub const OP: &str = "maestro.op";
    pub const ROOT: &str = "maestro.root";
    /// Of a collective in place: true.
    pub const IN_PLACE: &str = "maestro.in_place";
    /// Elements to each rank of the team, and from each.
    pub const SPLITS: &str = "maestro.splits";
    pub const RECEIVED: &str = "maestro.received";
    /// Sequence number in the group.
    pub const SEQ: &str = "maestro.seq";
    /// Nanoseconds.
    pub const CAPTURED: &str = "maestro.captured";
    pub const IDLE: &str = "maestro.idle";
    /// What compute does.
    pub const WORK: &str = "maestro.work";
}

/// Name of the node that lists the process groups.
pub(crate) const GROUPS: &str = "## process_group:init ##";
