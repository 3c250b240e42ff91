//! Chakra files by the bytes: a reader and a writer of the wire format, written from the schema's documentation and
//! sharing nothing with what they test.

use std::collections::BTreeMap;

/// A value of a field or attribute.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Number(u64),
    Bytes(Vec<u8>),
    Fixed(Vec<u8>),
}

impl Value {
    pub fn number(&self) -> u64 {
        match self {
            Self::Number(number) => *number,
            other => panic!("{other:?} is no number"),
        }
    }

    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            other => panic!("{other:?} is no bytes"),
        }
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(self.bytes()).expect("UTF-8")
    }
}

fn varint(bytes: &[u8], at: &mut usize) -> u64 {
    let (mut value, mut shift) = (0, 0);
    loop {
        let byte = bytes[*at];
        *at += 1;
        value |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte < 0x80 {
            return value;
        }
    }
}

/// The fields of a message, in order.
pub fn fields(bytes: &[u8]) -> Vec<(u64, Value)> {
    let (mut at, mut all) = (0, Vec::new());
    while at < bytes.len() {
        let key = varint(bytes, &mut at);
        let take = |at: &mut usize, length: usize| {
            *at += length;
            bytes[*at - length..*at].to_vec()
        };
        let value = match key & 7 {
            0 => Value::Number(varint(bytes, &mut at)),
            1 => Value::Fixed(take(&mut at, 8)),
            2 => {
                let length = varint(bytes, &mut at) as usize;
                Value::Bytes(take(&mut at, length))
            }
            5 => Value::Fixed(take(&mut at, 4)),
            kind => panic!("kind {kind} at byte {at}"),
        };
        all.push((key >> 3, value));
    }
    all
}

/// An attribute: which kind of value it has, by the schema's field number, and the value.
pub type Attributes = BTreeMap<String, (u64, Value)>;

pub struct Node {
    pub id: u64,
    pub name: String,
    pub kind: u64,
    pub ctrl_deps: Vec<u64>,
    pub data_deps: Vec<u64>,
    pub duration_us: u64,
    pub inputs: Option<String>,
    pub attributes: Attributes,
}

/// The metadata's version, its attributes, and the nodes of a file.
pub fn file(bytes: &[u8]) -> (String, Attributes, Vec<Node>) {
    let (mut at, mut messages) = (0, Vec::new());
    while at < bytes.len() {
        let length = varint(bytes, &mut at) as usize;
        messages.push(&bytes[at..at + length]);
        at += length;
    }
    let metadata = fields(messages[0]);
    let version = metadata.iter().find(|(field, _)| *field == 1).map_or("", |(_, value)| value.text()).to_owned();
    (version, attributes(&metadata, 2), messages[1..].iter().map(|message| node(&fields(message))).collect())
}

fn attributes(fields_of: &[(u64, Value)], field: u64) -> Attributes {
    let mut all = Attributes::new();
    for (_, value) in fields_of.iter().filter(|(number, _)| *number == field) {
        let inside = fields(value.bytes());
        let name = inside.iter().find(|(field, _)| *field == 1).expect("a name").1.text().to_owned();
        let mut values = inside.into_iter().filter(|(field, _)| *field > 2);
        let value = values.next().expect("a value");
        assert!(values.next().is_none(), "two values of {name}");
        assert!(all.insert(name.clone(), value).is_none(), "two attributes {name}");
    }
    all
}

fn node(all: &[(u64, Value)]) -> Node {
    let one = |field: u64| all.iter().find(|(number, _)| *number == field).map(|(_, value)| value);
    let number = |field| one(field).map_or(0, Value::number);
    let numbers = |field: u64| {
        let mut numbers = Vec::new();
        for (_, value) in all.iter().filter(|(number, _)| *number == field) {
            match value {
                Value::Bytes(packed) => {
                    let mut at = 0;
                    while at < packed.len() {
                        numbers.push(varint(packed, &mut at));
                    }
                }
                other => numbers.push(other.number()),
            }
        }
        numbers
    };
    assert!(all.iter().all(|(field, _)| (1..=10).contains(field)), "a field that the schema does not have");
    let inputs = one(8).map(|inputs| fields(inputs.bytes())[0].1.text().to_owned());
    Node {
        id: number(1),
        name: one(2).map_or("", Value::text).to_owned(),
        kind: number(3),
        ctrl_deps: numbers(4),
        data_deps: numbers(5),
        duration_us: number(7),
        inputs,
        attributes: attributes(all, 10),
    }
}

fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// A field of a message.
pub fn number(out: &mut Vec<u8>, field: u64, number: u64) {
    put(out, field << 3);
    put(out, number);
}

pub fn bytes(out: &mut Vec<u8>, field: u64, content: &[u8]) {
    put(out, field << 3 | 2);
    put(out, content.len() as u64);
    out.extend(content);
}

/// An attribute of a kind of number.
pub fn attribute(name: &str, kind: u64, value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    bytes(&mut out, 1, name.as_bytes());
    number(&mut out, kind, value);
    out
}

/// A node with all that tests need.
pub fn written(id: u64, name: &str, kind: u64, deps: &[u64], duration_us: u64, attributes: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    if id > 0 {
        number(&mut out, 1, id);
    }
    bytes(&mut out, 2, name.as_bytes());
    number(&mut out, 3, kind);
    let mut packed = Vec::new();
    deps.iter().for_each(|dep| put(&mut packed, *dep));
    bytes(&mut out, 5, &packed);
    if duration_us > 0 {
        number(&mut out, 7, duration_us);
    }
    attributes.iter().for_each(|attribute| bytes(&mut out, 10, attribute));
    out
}

/// A file of a version and these nodes.
pub fn whole(nodes: &[Vec<u8>]) -> Vec<u8> {
    let (mut metadata, mut out) = (Vec::new(), Vec::new());
    bytes(&mut metadata, 1, b"0.0.4");
    for message in [&metadata].into_iter().chain(nodes) {
        put(&mut out, message.len() as u64);
        out.extend(message);
    }
    out
}
