//! Lines of JSON exports as they are written; numbers may be text. What an import does not need is passed over.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};

/// An integer, also as text.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Whole(pub i64);

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Any;
        impl Visitor<'_> for Any {
            type Value = Whole;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an integer")
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> std::result::Result<Whole, E> {
                Ok(Whole(number))
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> std::result::Result<Whole, E> {
                // Above, only numbers that stand for nothing are met.
                Ok(Whole(i64::try_from(number).unwrap_or(-1)))
            }

            fn visit_f64<E: de::Error>(self, number: f64) -> std::result::Result<Whole, E> {
                Ok(Whole(number as i64))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> std::result::Result<Whole, E> {
                text.trim().parse().map(Whole).or_else(|_| self.visit_u64(text.trim().parse().map_err(E::custom)?))
            }
        }
        deserializer.deserialize_any(Any)
    }
}

#[derive(Deserialize)]
pub(super) struct Line<'a> {
    #[serde(borrow)]
    pub data: Option<Vec<Option<Cow<'a, str>>>>,
    #[serde(rename = "CudaEvent")]
    pub cuda: Option<Cuda>,
    #[serde(rename = "TraceProcessEvent")]
    pub call: Option<Call>,
    #[serde(rename = "NvtxEvent", borrow)]
    pub nvtx: Option<Range<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Cuda {
    #[serde(default)]
    pub start_ns: Whole,
    #[serde(default)]
    pub end_ns: Whole,
    #[serde(default)]
    pub correlation_id: Whole,
    #[serde(default)]
    pub device_id: Whole,
    #[serde(default)]
    pub context_id: Whole,
    pub stream_id: Option<Whole>,
    #[serde(default)]
    pub global_pid: Whole,
    pub kernel: Option<Kernel>,
    pub memcpy: Option<Copy>,
    pub memset: Option<Set>,
    pub sync: Option<Wait>,
    pub cuda_event_record: Option<Record>,
    /// A graph that was recorded as a whole; what is in it does not matter.
    pub graph: Option<de::IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Kernel {
    pub demangled_name: Option<Whole>,
    pub short_name: Option<Whole>,
    pub mangled_name: Option<Whole>,
    #[serde(default)]
    pub grid_x: Whole,
    #[serde(default)]
    pub grid_y: Whole,
    #[serde(default)]
    pub grid_z: Whole,
    pub graph_id: Option<Whole>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Copy {
    #[serde(default)]
    pub sizebytes: Whole,
    #[serde(default)]
    pub copy_kind: Whole,
    pub src_kind: Option<Whole>,
    pub dst_kind: Option<Whole>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Set {
    #[serde(default)]
    pub sizebytes: Whole,
    pub mem_kind: Option<Whole>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Wait {
    pub event_id: Option<Whole>,
    pub event_sync_id: Option<Whole>,
    #[serde(default)]
    pub sync_type: Whole,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Record {
    pub event_id: Option<Whole>,
    pub event_sync_id: Option<Whole>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Call {
    #[serde(default)]
    pub start_ns: Whole,
    #[serde(default)]
    pub end_ns: Whole,
    #[serde(default)]
    pub correlation_id: Whole,
    pub name: Option<Whole>,
    #[serde(default)]
    pub global_tid: Whole,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Range<'a> {
    #[serde(default)]
    pub r#type: Whole,
    #[serde(default)]
    pub timestamp: Whole,
    pub end_timestamp: Option<Whole>,
    #[serde(borrow)]
    pub text: Option<Cow<'a, str>>,
    pub text_id: Option<Whole>,
    #[serde(default)]
    pub global_tid: Whole,
    #[serde(default)]
    pub domain_id: Whole,
    #[serde(borrow)]
    pub payload: Option<Payload<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Payload<'a> {
    #[serde(borrow, default)]
    pub binary_data: Vec<Binary<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Binary<'a> {
    #[serde(borrow)]
    pub data: Option<Cow<'a, str>>,
}
