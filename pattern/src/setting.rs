//! A setting that a command line changes: one key of one axis or lane, as `axis.dp.max_ctas=4`.

use std::fmt;
use std::str::FromStr;

use crate::communicators::merged;
use crate::{Error, Pattern, Place, Result, yaml};

/// `axis.NAME.KEY=VALUE` or `lane.NAME.KEY=VALUE`, with the keys and values that patterns have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    lane: bool,
    name: String,
    key: String,
    value: String,
}

impl Setting {
    /// Whether `text` begins as a setting does; anything else may be a variable's name.
    pub fn is_meant(text: &str) -> bool {
        text.starts_with("axis.") || text.starts_with("lane.")
    }

    /// `axis.dp.max_ctas`
    pub fn path(&self) -> String {
        format!("{}.{}.{}", self.kind(), self.name, self.key)
    }

    /// What it is set to.
    pub fn value(&self) -> &str {
        &self.value
    }

    fn kind(&self) -> &'static str {
        if self.lane { "lane" } else { "axis" }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.path(), self.value)
    }
}

impl FromStr for Setting {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || {
            Error::at(Place::default(), format!("`{text}` is no setting"))
                .help("write axis.NAME.KEY=VALUE or lane.NAME.KEY=VALUE, as axis.dp.max_ctas=4")
        };
        let (path, value) = text.split_once('=').ok_or_else(wrong)?;
        let (kind, rest) =
            path.split_once('.').filter(|(kind, _)| ["axis", "lane"].contains(kind)).ok_or_else(wrong)?;
        // Names may hold dots, keys do not.
        let (name, key) = rest.rsplit_once('.').ok_or_else(wrong)?;
        let value = value.trim();
        if name.is_empty() || key.is_empty() || value.is_empty() || text.contains(['\n', '\r']) {
            return Err(wrong());
        }
        Ok(Self { lane: kind == "lane", name: name.into(), key: key.into(), value: value.into() })
    }
}

impl Pattern {
    /// Changes one setting, keeping all others.
    ///
    /// # Errors
    /// No axis or lane has the name, or it has no such key, or the key no such value.
    pub fn set(&mut self, setting: &Setting) -> Result<()> {
        let Setting { lane, name, key, value } = setting;
        let what = format!("{} `{name}`", setting.kind());
        let none =
            |known: Vec<&str>| Error::at(Place::default(), format!("the pattern has no {what}")).nearest(name, known);
        // What the value lacks in a line of its own says nothing about a file.
        let nowhere = |error: Error| Error { place: Place::default(), ..error };
        let (priority, settings) = yaml::setting(&what, key, value, *lane).map_err(nowhere)?;
        if *lane {
            let known: Vec<String> = self.lanes.iter().map(|lane| lane.name.clone()).collect();
            let found = self.lanes.iter_mut().find(|lane| lane.name == *name);
            let lane = found.ok_or_else(|| none(known.iter().map(String::as_str).collect()))?;
            lane.priority = priority.unwrap_or(lane.priority);
            lane.settings = merged(&lane.settings, &settings);
        } else {
            let known: Vec<String> = self.axes.iter().map(|axis| axis.name.clone()).collect();
            let found = self.axes.iter_mut().find(|axis| axis.name == *name);
            let axis = found.ok_or_else(|| none(known.iter().map(String::as_str).collect()))?;
            axis.settings = merged(&axis.settings, &settings);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern() -> Pattern {
        Pattern::from_yaml(
            "maestro: 1\nname: t\naxes: {dp: {size: 2, min_ctas: 2}}\nlanes: {comm: {}}\nblocks: {b: {barrier: {}}}\n\
             schedule: [{run: b, on: dp}]\n",
        )
        .unwrap()
    }

    fn set(text: &str) -> Result<Pattern> {
        let mut pattern = pattern();
        pattern.set(&text.parse()?)?;
        Ok(pattern)
    }

    #[test]
    fn one_key_changes_and_the_others_stay() {
        let changed = set("axis.dp.max_ctas=4").unwrap();
        assert_eq!((changed.axes[0].settings.min_ctas, changed.axes[0].settings.max_ctas), (Some(2), Some(4)));
        assert_eq!(set("axis.dp.min_ctas=8").unwrap().axes[0].settings.min_ctas, Some(8));
        let text = set("lane.comm.priority=high").unwrap().to_yaml();
        assert!(text.contains("priority: high"), "{text}");
        assert_eq!(
            set("lane.comm.algorithm=NVLS,Tree").unwrap().lanes[0].settings.algorithm.as_deref(),
            Some("NVLS,Tree")
        );
        assert_eq!(set("lane.comm.nvls=false").unwrap().lanes[0].settings.nvls, Some(false));
    }

    #[test]
    fn what_is_wrong_is_said_without_a_place_in_a_file() {
        for (text, words) in [
            ("axis.dq.max_ctas=4", "no axis `dq`; did you mean `dp`?"),
            ("lane.com.nvls=true", "no lane `com`; did you mean `comm`?"),
            ("axis.dp.max_cta=4", "unknown key `max_cta` in axis `dp`; did you mean `max_ctas`?"),
            ("axis.dp.max_ctas=many", "max_ctas of axis `dp` must be a whole number"),
            ("axis.dp.priority=high", "unknown key `priority` in axis `dp`"),
            ("lane.comm.priority=highest", "the priority of lane `comm` cannot be `highest`"),
            ("axis.dp=4", "as axis.dp.max_ctas=4"),
            ("dp.max_ctas=4", "as axis.dp.max_ctas=4"),
            ("axis.dp.max_ctas=", "as axis.dp.max_ctas=4"),
            ("axis.dp.max_ctas=4\nmin_ctas: 3", "is no setting"),
        ] {
            let said = set(text).unwrap_err().to_string();
            assert!(said.contains(words) && !said.starts_with("line"), "{text}: {said}");
        }
    }

    #[test]
    fn it_reads_as_it_is_written() {
        let setting: Setting = "lane.a.b.sharp=true".parse().unwrap();
        assert_eq!((setting.path().as_str(), setting.value()), ("lane.a.b.sharp", "true"));
        assert_eq!(setting.to_string(), "lane.a.b.sharp=true");
    }
}
