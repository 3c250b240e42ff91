use super::*;
use maestro_pattern::{Role, Selector, When};

fn pattern(schedule: &str) -> Pattern {
    let text = format!(
        "maestro: 1
name: t
axes: {{dp: {{size: 2}}}}
blocks:
  g: {{all_gather: {{size: 96, dtype: f32}}}}
  c: {{compute: [{{hold: 5us}}]}}
  d: {{compute: [{{hold: 5us}}]}}
  e: {{compute: [{{hold: 5us}}]}}
lanes: {{main: {{}}, side: {{}}}}
schedule:
{schedule}"
    );
    Pattern::from_yaml(&text).unwrap()
}

const LAYER: &str = "- {run: g, on: dp, lane: side}
- {host: 10us}
- {run: c, lane: main, after: [g]}
- {host: 10us}
- {run: c, lane: main}
- {host: 10us}
- {run: d, lane: main}
";

fn total(pattern: &Pattern) -> u64 {
    let plan = Plan::new(pattern, &[]).unwrap();
    let of = |i: &Instruction| if let Instruction::Host(ns) = i { *ns } else { 0 };
    plan.program(0).instructions.iter().map(of).sum()
}

#[test]
fn what_stands_twice_becomes_a_motif_and_host_time_keeps_its_sum() {
    let slow = LAYER.replace("10us", "12us");
    let mut folded = pattern(&format!("{LAYER}- {{host: 7us}}\n- {{run: d, lane: side}}\n{slow}"));
    let plain = folded.clone();
    extract(&mut folded);
    assert_eq!(folded.motifs.len(), 1);
    assert_eq!(folded.schedule.len(), 4);
    assert_eq!(folded.motifs[0].items[1].step, Step::Host(11_000));
    assert_eq!(total(&folded), total(&plain));
    assert_eq!(Pattern::from_yaml(&folded.to_yaml()).unwrap(), folded);
}

#[test]
fn host_times_that_differ_make_two_sequences() {
    let slow = LAYER.replace("10us", "40us");
    let mut folded = pattern(&format!("{LAYER}- {{run: d, lane: side}}\n{slow}"));
    extract(&mut folded);
    assert!(folded.motifs.is_empty());
}

#[test]
fn what_would_change_its_meaning_is_cut() {
    // Inside a motif, `g` before its own gather would mean the one of the iteration before.
    let layer = LAYER.replace("- {run: g", "- {run: d, lane: main, after: [g]}\n- {run: g");
    let mut folded = pattern(&format!("- {{run: g, on: dp, lane: side}}\n{layer}- {{run: d, lane: side}}\n{layer}"));
    let plain = Plan::new(&folded, &[]).unwrap();

    let row = Row::new(&folded);
    let (sorted, all) = row.repeats();
    let offered = row.located(all.iter().max().unwrap(), &sorted).unwrap();
    assert_eq!((offered.length.0, offered.places.0.as_slice()), (8, &[1, 10][..]));
    assert!(!Plan::new(&replaced(&folded, &offered), &[]).is_ok_and(|changed| same(&plain, &changed)));
    assert_eq!(row.changes(&offered), Some((0, 1)));

    extract(&mut folded);
    let motif = pattern(LAYER).schedule;
    assert_eq!(folded.motifs.iter().map(|motif| &motif.items).collect::<Vec<_>>(), [&motif]);
    assert!(same(&plain, &Plan::new(&folded, &[]).unwrap()));
}

#[test]
fn a_reference_that_goes_on_meaning_the_same_is_no_reason_to_cut() {
    // `e` is issued before both layers and in neither.
    let layer = LAYER.replace("after: [g]", "after: [g, e]");
    let mut folded = pattern(&format!("- {{run: e, lane: side}}\n{layer}- {{run: d, lane: side}}\n{layer}"));
    let plain = Plan::new(&folded, &[]).unwrap();
    extract(&mut folded);
    assert_eq!(folded.motifs.iter().map(|motif| motif.items.len()).collect::<Vec<_>>(), [7]);
    assert!(same(&plain, &Plan::new(&folded, &[]).unwrap()));
}

/// Two roles with these schedules.
fn roles(schedules: [&str; 2]) -> Pattern {
    let mut both = pattern(schedules[0]);
    for (n, schedule) in schedules.into_iter().enumerate() {
        let when = When(vec![("dp".into(), Selector::These(vec![n as u32]))]);
        let schedule = pattern(schedule).schedule;
        both.roles.push(Role { name: format!("dp_{n}"), when, schedule, place: Default::default() });
    }
    both.schedule.clear();
    both
}

#[test]
fn roles_share_a_motif_only_if_none_gains_host_time() {
    let mut alike = roles([LAYER, LAYER]);
    extract(&mut alike);
    assert_eq!(alike.motifs.len(), 1);

    let slow = LAYER.replace("10us", "12us");
    let apart = roles([LAYER, &slow]);
    let row = Row::new(&apart);
    let (sorted, all) = row.repeats();
    let offered = row.located(all.iter().max().unwrap(), &sorted).unwrap();
    let plan = |pattern: &Pattern| Plan::new(pattern, &[]).unwrap();
    assert!(!same(&plan(&apart), &plan(&replaced(&apart, &offered))));
    let mut folded = apart.clone();
    extract(&mut folded);
    assert_eq!(folded, apart);

    // What stands twice in each is a motif of each.
    let twice = |layer: &str| format!("{layer}- {{run: d, lane: side}}\n{layer}");
    let mut folded = roles([&twice(LAYER), &twice(&slow)]);
    let before = plan(&folded);
    extract(&mut folded);
    let hosts: Vec<&Step> = folded.motifs.iter().map(|motif| &motif.items[1].step).collect();
    assert_eq!(hosts, [&Step::Host(10_000), &Step::Host(12_000)]);
    assert!(same(&before, &plan(&folded)));
}

#[test]
fn the_gap_in_which_places_differ_most_is_left_to_them() {
    let layers: String = [20, 900].map(|us| format!("{LAYER}- {{host: {us}us}}\n{LAYER}- {{run: e}}\n")).concat();
    let mut folded = pattern(&layers.replace("{run: e}", "{run: e, lane: side}"));
    let plain = Plan::new(&folded, &[]).unwrap();
    extract(&mut folded);
    assert_eq!(folded.motifs.len(), 1);
    assert_eq!(folded.schedule.len(), 8);
    assert!(same(&plain, &Plan::new(&folded, &[]).unwrap()));
}

#[test]
fn long_schedules_become_shorter() {
    // Layers with one thing or another in between, in an order that does not repeat.
    let between = |n: u32| ["- {run: e, lane: side}\n", "- {run: d, lane: side}\n"][n.count_ones() as usize % 2];
    let layers: String = (0..600).map(|n| format!("{LAYER}{}", between(n))).collect();
    let mut folded = pattern(&layers);
    let (plain, items) = (Plan::new(&folded, &[]).unwrap(), folded.schedule.len());
    extract(&mut folded);
    assert!(folded.motifs.len() <= MOST_MOTIFS && folded.schedule.len() * 10 < items);
    assert!(same(&plain, &Plan::new(&folded, &[]).unwrap()));
}
