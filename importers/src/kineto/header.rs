//! What stands beside `traceEvents`: rank, process groups, devices and the zero of time. It may stand behind them.

use serde::Deserialize;

use super::event::{List, Raw, bare, integer, text};
use super::time::LIMIT_NS;
use crate::Notes;
use crate::capture::ProcessGroup;

/// What the header says, as far as it says it.
#[derive(Default)]
pub(super) struct Header {
    /// Nanoseconds of the Unix epoch that all times are relative to.
    pub(super) base_ns: i64,
    /// Global rank.
    pub(super) rank: Option<u32>,
    /// Number of ranks of the job.
    pub(super) world_size: Option<u32>,
    /// Process groups.
    pub(super) groups: Vec<ProcessGroup>,
    /// Devices of the host.
    pub(super) devices: Vec<Device>,
}

/// A device of the host.
pub(super) struct Device {
    /// Ordinal.
    pub(super) id: u32,
    /// Name, if it has one.
    pub(super) name: Option<String>,
    /// Number of multiprocessors.
    pub(super) sms: Option<u32>,
}

/// The keys that are read.
#[derive(Clone, Copy)]
pub(super) enum Key {
    Base,
    Distributed,
    Devices,
}

impl Key {
    /// The key of this name.
    pub(super) fn from_name(name: &[u8]) -> Option<Self> {
        match name {
            b"baseTimeNanoseconds" => Some(Self::Base),
            b"distributedInfo" => Some(Self::Distributed),
            b"deviceProperties" => Some(Self::Devices),
            _ => None,
        }
    }
}

#[derive(Default, Deserialize)]
struct DistributedInfo<'a> {
    #[serde(borrow)]
    rank: Raw<'a>,
    #[serde(borrow)]
    world_size: Raw<'a>,
    #[serde(borrow)]
    pg_config: Raw<'a>,
}

#[derive(Deserialize)]
struct GroupConfig<'a> {
    #[serde(borrow)]
    pg_name: Raw<'a>,
    #[serde(borrow)]
    pg_desc: Raw<'a>,
    #[serde(borrow)]
    ranks: Raw<'a>,
}

#[derive(Deserialize)]
struct DeviceProperties<'a> {
    #[serde(borrow)]
    id: Raw<'a>,
    #[serde(borrow)]
    name: Raw<'a>,
    #[serde(borrow, rename = "numSms")]
    sms: Raw<'a>,
}

impl Header {
    /// Takes the value of a key.
    ///
    /// # Errors
    /// JSON that breaks its grammar. Grammatical values of another shape count as not recorded.
    pub(super) fn take(&mut self, key: Key, json: &str, notes: &mut Notes) -> serde_json::Result<()> {
        let raw: Raw<'_> = Some(serde_json::from_str(json)?);
        match key {
            Key::Base => match integer(raw).filter(|base: &i64| (0..=LIMIT_NS).contains(base)) {
                Some(base) => self.base_ns = base,
                None => notes.add("base times that are no time", || json.to_owned()),
            },
            Key::Distributed => {
                let info: DistributedInfo<'_> = serde_json::from_str(json).unwrap_or_default();
                self.rank = integer(info.rank);
                self.world_size = integer(info.world_size);
                let groups: Vec<GroupConfig<'_>> = list(info.pg_config);
                self.groups = groups.into_iter().filter_map(|group| group.read(notes)).collect();
            }
            Key::Devices => {
                let devices: Vec<DeviceProperties<'_>> = list(raw);
                self.devices = devices.into_iter().filter_map(DeviceProperties::read).collect();
            }
        }
        Ok(())
    }
}

impl GroupConfig<'_> {
    /// `None` if its ranks are not all there: an empty list would mean the whole world.
    fn read(self, notes: &mut Notes) -> Option<ProcessGroup> {
        let ranks = match List::read(self.ranks) {
            List::Whole(ranks) => ranks.into_iter().map(|rank| u32::try_from(rank).ok()).collect(),
            List::Cut => None,
        };
        if ranks.is_none() {
            notes.add("process groups whose list of ranks is cut", || bare(self.pg_name).to_owned());
        }
        Some(ProcessGroup {
            name: text(self.pg_name).unwrap_or_default().into_owned(),
            desc: text(self.pg_desc).unwrap_or_default().into_owned(),
            ranks: ranks?,
        })
    }
}

impl DeviceProperties<'_> {
    fn read(self) -> Option<Device> {
        Some(Device {
            id: integer(self.id)?,
            name: text(self.name).filter(|name| !name.is_empty()).map(std::borrow::Cow::into_owned),
            sms: integer(self.sms),
        })
    }
}

/// A list of objects; empty if it is none.
fn list<'a, T: Deserialize<'a>>(raw: Raw<'a>) -> Vec<T> {
    raw.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(key: Key, json: &str) -> (Header, Notes) {
        let (mut header, mut notes) = (Header::default(), Notes::default());
        header.take(key, json, &mut notes).unwrap();
        (header, notes)
    }

    #[test]
    fn ranks_and_groups_are_read_from_lists_and_strings() {
        let (header, notes) = header(
            Key::Distributed,
            r#"{"backend": "nccl", "rank": 1, "world_size": 4, "pg_config": [
                {"pg_name": "0", "pg_desc": "default_pg", "ranks": []},
                {"pg_name": "1", "pg_desc": "tp", "ranks": [0, 1]},
                {"pg_name": "2", "pg_desc": "dp", "ranks": "[1, 3]"},
                {"pg_name": "3", "pg_desc": "far", "ranks": "[1, 3, ...]"}]}"#,
        );
        assert_eq!((header.rank, header.world_size), (Some(1), Some(4)));
        let ranks: Vec<&[u32]> = header.groups.iter().map(|group| group.ranks.as_slice()).collect();
        assert_eq!(ranks, [&[][..], &[0, 1], &[1, 3]]);
        assert_eq!(header.groups[2].desc, "dp");
        assert_eq!(notes.iter().map(|(_, note)| note.example.as_str()).collect::<Vec<_>>(), ["3"]);
    }

    #[test]
    fn devices_without_a_name_are_devices() {
        let (header, _) = header(Key::Devices, r#"[{"id": 0, "name": "", "numSms": 304}, {"name": "no id"}]"#);
        assert_eq!(header.devices.len(), 1);
        assert_eq!((header.devices[0].name.as_deref(), header.devices[0].sms), (None, Some(304)));
    }

    #[test]
    fn another_shape_is_nothing_recorded() {
        for (key, json) in
            [(Key::Distributed, "3"), (Key::Distributed, r#"{"rank": "?", "pg_config": 4}"#), (Key::Devices, "{}")]
        {
            let (header, _) = header(key, json);
            assert_eq!((header.rank, header.groups.len(), header.devices.len()), (None, 0, 0), "{json}");
        }
        let (header, notes) = header(Key::Base, "9223372036854775807");
        assert_eq!((header.base_ns, notes.is_empty()), (0, false));
    }
}
