//! What the back end refuses, where no MPI has to run.

use maestro_pattern::{Pattern, Plan};

use super::{Mpi, largest_all_reduce};
use crate::{Backend, Settings};

fn plan(text: &str) -> Plan {
    let pattern = Pattern::from_yaml(&format!("maestro: 1\nname: test\naxes: {{dp: {{size: 2}}}}\n{text}")).unwrap();
    Plan::new(&pattern, &[]).unwrap()
}

#[test]
fn one_process_is_told_how_to_start_several() {
    let plan = plan("blocks: {g: {all_gather: {size: 8B, dtype: u8}}}\nlanes: {x: {}}\nschedule: [{run: g, on: dp}]");
    let told = Mpi.run(&plan, &Settings::default()).unwrap_err().to_string();
    assert!(told.contains("mpirun -np 2 maestro replay"), "{told}");
}

#[test]
fn what_mpi_cannot_count_is_refused_by_name() {
    let refused = |block: &str| {
        let plan = plan(&format!("blocks: {{g: {block}}}\nlanes: {{x: {{}}}}\nschedule: [{{run: g, on: dp}}]"));
        Mpi.probe(&plan, &Settings::default()).unwrap_err().to_string()
    };
    let told = refused("{all_reduce: {size: 2GiB, dtype: u8}}");
    assert!(told.contains("block `g` moves 2147483648 elements"), "{told}");
    // A wider type has fewer elements, and of what is divided a call counts the part of one rank.
    assert!(refused("{all_reduce: {size: 2GiB, dtype: f32}}").contains("its ranks are processes"));
    assert!(refused("{all_gather: {size: 2GiB, dtype: u8}}").contains("its ranks are processes"));
}

#[test]
fn the_largest_team_that_all_reduces_is_found() {
    let text = "maestro: 1
name: test
axes: {dp: {size: 4}, tp: {size: 2}}
blocks:
  gather: {all_gather: {size: 8B, dtype: u8}}
  sum: {all_reduce: {size: 8B, dtype: u8}}
lanes: {x: {}}
";
    let of = |schedule: &str| {
        let pattern = Pattern::from_yaml(&format!("{text}schedule: {schedule}")).unwrap();
        largest_all_reduce(&Plan::new(&pattern, &[]).unwrap())
    };
    assert_eq!(of("[{run: gather, on: dp}]"), None);
    assert_eq!(of("[{run: gather, on: dp}, {run: sum, on: tp}]"), Some(2));
    assert_eq!(of("[{run: sum, on: tp}, {run: sum, on: dp, as: wide}]"), Some(4));
}
