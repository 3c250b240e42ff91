//! What differs between the runs beside what they measured: a verdict on a change means something only if nothing else
//! changed.
//!
//! Everything that run.json says about how and where a run was made is a *fact* with a name. The pattern's settings of
//! communicators are facts of their own, so that one of them can be what is compared while the rest of the pattern must
//! be the same. Names, times and notes of runs are none.

use std::collections::{BTreeMap, BTreeSet};

use maestro_pattern::{CommSettings, Pattern, Priority};

use super::glob;
use crate::{PatternInfo, RunInfo};

/// A fact of which the runs do not all have the same value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Its name, as `--changed` takes it.
    pub key: String,
    /// The values before, each once; what is not set is `-`.
    pub before: Vec<String>,
    /// The values after.
    pub after: Vec<String>,
    /// Whether it is what is compared.
    pub declared: bool,
}

impl std::fmt::Display for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {} -> {}", self.key, self.before.join(" and "), self.after.join(" and "))
    }
}

/// The facts of a run.
pub(crate) type Facts = BTreeMap<String, String>;

/// What stands for a fact that a run does not have.
const UNSET: &str = "-";

/// The facts of one run.
pub(crate) fn facts(info: &RunInfo, pattern: &Pattern) -> Facts {
    let mut facts = Facts::new();
    let mut put = |key: &str, value: String| {
        facts.insert(key.to_owned(), value);
    };
    let some = |value: &Option<String>| value.clone().unwrap_or_else(|| UNSET.to_owned());
    put("made_by", info.made_by.participle().to_owned());
    put("pattern", structure(pattern));
    put("ranks", info.ranks.to_string());
    put("processes", info.processes.to_string());
    put("backend", info.backend.clone());
    put("maestro", info.maestro.clone());
    for axis in &info.axes {
        let teams = axis.teams.as_ref().map(|teams| format!("{teams:?}"));
        put(&format!("axis.{}", axis.name), axis.size.map_or_else(|| some(&teams), |size| size.to_string()));
    }
    let settings = &info.settings;
    put("settings.warm_up", settings.warm_up.to_string());
    put("settings.iterations", settings.iterations.to_string());
    put("settings.rounds", settings.rounds.to_string());
    put("settings.pacing", some(&settings.pacing));
    put("settings.compute", some(&settings.compute));
    put("settings.graph", settings.graph.to_string());
    put("settings.back_to_back", settings.back_to_back.to_string());
    let environment = &info.environment;
    put("os", environment.os.clone());
    put("arch", environment.arch.clone());
    put("cpu", some(&environment.cpu));
    put("cores", environment.cores.to_string());
    put("gpus", environment.gpus.join(", "));
    put("hosts", environment.hosts.unwrap_or(1).to_string());
    put("launcher", some(&environment.launcher));
    for (name, version) in &environment.libraries {
        put(&format!("libraries.{name}"), version.clone());
    }
    let steering = environment.variables.iter().filter(|(name, _)| !of_one_launch(name));
    for (name, value) in steering.chain(&environment.variant) {
        put(name, value.clone());
    }
    for axis in &pattern.axes {
        communicators(&format!("axis.{}", axis.name), &axis.settings, &mut facts);
    }
    for lane in &pattern.lanes {
        communicators(&format!("lane.{}", lane.name), &lane.settings, &mut facts);
        facts.insert(format!("lane.{}.priority", lane.name), lane.priority.name().to_owned());
    }
    facts
}

/// Whether mpirun sets the variable itself, anew for each launch: where its daemon listens, the number of the job.
fn of_one_launch(variable: &str) -> bool {
    ["OMPI_MCA_orte_", "OMPI_MCA_ess_", "OMPI_MCA_pmix", "OMPI_MCA_initial_wdir"]
        .iter()
        .any(|start| variable.starts_with(start))
}

/// The pattern without its settings, as a hash of its text: comments and layout do not count.
fn structure(pattern: &Pattern) -> String {
    let mut bare = pattern.clone();
    bare.axes.iter_mut().for_each(|axis| axis.settings = CommSettings::default());
    for lane in &mut bare.lanes {
        lane.settings = CommSettings::default();
        lane.priority = Priority::default();
    }
    PatternInfo::new("", &bare.to_yaml()).hash
}

fn communicators(of: &str, settings: &CommSettings, facts: &mut Facts) {
    // Without `..`: a new setting must be a fact, too.
    let CommSettings {
        min_ctas,
        max_ctas,
        cga_cluster_size,
        split_share,
        traffic_class,
        algorithm,
        protocol,
        nvls,
        sharp,
    } = settings;
    let number = |value: &Option<u32>| value.map(|value| value.to_string());
    let truth = |value: &Option<bool>| value.map(|value| value.to_string());
    for (key, value) in [
        ("min_ctas", number(min_ctas)),
        ("max_ctas", number(max_ctas)),
        ("cga_cluster_size", number(cga_cluster_size)),
        ("split_share", truth(split_share)),
        ("traffic_class", number(traffic_class)),
        ("algorithm", algorithm.clone()),
        ("protocol", protocol.clone()),
        ("nvls", truth(nvls)),
        ("sharp", truth(sharp)),
    ] {
        facts.extend(value.map(|value| (format!("{of}.{key}"), value)));
    }
}

/// The facts that are not the same in all runs. `declared` are names, in which `*` stands for any text.
pub(crate) fn changes(before: &[&Facts], after: &[&Facts], declared: &[String]) -> Vec<Change> {
    let keys: BTreeSet<&String> = before.iter().chain(after).flat_map(|facts| facts.keys()).collect();
    let values = |side: &[&Facts], key: &String| -> Vec<String> {
        let all: BTreeSet<&str> = side.iter().map(|facts| facts.get(key).map_or(UNSET, String::as_str)).collect();
        all.into_iter().map(str::to_owned).collect()
    };
    let change = |key: &String| {
        let (before, after) = (values(before, key), values(after, key));
        (before.len() > 1 || before != after).then(|| Change {
            key: key.clone(),
            before,
            after,
            declared: declared.iter().any(|pattern| glob::matches(pattern, key)),
        })
    };
    keys.into_iter().filter_map(change).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(pairs: &[(&str, &str)]) -> Facts {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn what_differs_is_named_with_its_values() {
        let (a, b) = (facts(&[("x", "1"), ("y", "2")]), facts(&[("x", "1"), ("z", "3")]));
        let found = changes(&[&a, &a], &[&b], &["z".to_owned()]);
        let lines: Vec<String> = found.iter().map(Change::to_string).collect();
        assert_eq!(lines, ["y: 2 -> -", "z: - -> 3"]);
        assert_eq!(found.iter().map(|change| change.declared).collect::<Vec<_>>(), [false, true]);
    }

    #[test]
    fn runs_of_one_side_that_differ_are_a_change() {
        let (a, b) = (facts(&[("cores", "2")]), facts(&[("cores", "4")]));
        let found = changes(&[&a, &b], &[&b, &a], &[]);
        assert_eq!(found[0].to_string(), "cores: 2 and 4 -> 2 and 4");
        assert_eq!(changes(&[&a, &a], &[&a], &[]), []);
    }

    #[test]
    fn what_mpirun_sets_for_each_launch_is_no_fact() {
        for (variable, is) in [
            ("OMPI_MCA_orte_hnp_uri", true),
            ("OMPI_MCA_ess_base_jobid", true),
            ("OMPI_MCA_btl", false),
            ("OMPI_MCA_coll_tuned_use_dynamic_rules", false),
        ] {
            assert_eq!(of_one_launch(variable), is, "{variable}");
        }
    }

    #[test]
    fn settings_of_communicators_are_facts_and_layout_is_none() {
        let text = |axis: &str, extra: &str| {
            format!(
                "maestro: 1\nname: t{extra}\naxes: {{dp: {axis}}}\nlanes: {{main: {{}}}}\nblocks: {{b: {{barrier: {{}}}}}}\n\
                 schedule: [{{run: b, on: dp}}]\n"
            )
        };
        let read = |text: String| Pattern::from_yaml(&text).unwrap();
        let plain = read(text("{size: 2}", ""));
        assert_eq!(structure(&plain), structure(&read(text("{size: 2, min_ctas: 4}", "   # as it was"))));
        assert_ne!(structure(&plain), structure(&read(text("{size: 4}", ""))));
        let mut found = Facts::new();
        communicators("axis.dp", &read(text("{size: 2, min_ctas: 4}", "")).axes[0].settings, &mut found);
        assert_eq!(found, facts(&[("axis.dp.min_ctas", "4")]));
    }
}
