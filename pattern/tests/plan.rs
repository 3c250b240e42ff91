//! Plans: what references mean once unrolled, and what the order check refuses.

use maestro_pattern::{AxisSize, Instruction, Pattern, Plan, Program};

fn pattern_text(axes: &str, schedule: &str) -> String {
    format!(
        "maestro: 1
name: t
axes: {axes}
blocks:
  g: {{all_gather: {{size: 96, dtype: f32}}}}
  r: {{reduce_scatter: {{size: 96, dtype: f32}}}}
  c: {{compute: [{{hold: 5us}}]}}
  next: {{p2p: [{{send: {{to: 1, size: 8, dtype: f32}}}}, {{recv: {{from: -1, size: 8, dtype: f32}}}}]}}
  push: {{p2p: [{{send: {{to: 1, size: 8, dtype: f32}}}}]}}
  pull: {{p2p: [{{recv: {{from: -1, size: 8, dtype: f32}}}}]}}
  pull_wide: {{p2p: [{{recv: {{from: -1, size: 16, dtype: f32}}}}]}}
lanes: {{main: {{}}, side: {{}}}}
{schedule}"
    )
}

fn pattern(axes: &str, schedule: &str) -> Pattern {
    Pattern::from_yaml(&pattern_text(axes, schedule)).unwrap()
}

fn plan(axes: &str, schedule: &str) -> Plan {
    Plan::new(&pattern(axes, schedule), &[]).unwrap()
}

fn refused(axes: &str, schedule: &str) -> String {
    Plan::new(&pattern(axes, schedule), &[]).unwrap_err().to_string()
}

/// (block name, indices waited for) of every issue.
fn issues(plan: &Plan, program: &Program) -> Vec<(String, Vec<u32>)> {
    program
        .instructions
        .iter()
        .filter_map(|i| match i {
            Instruction::Issue { block, after, .. } => Some((plan.blocks[*block as usize].name.clone(), after.clone())),
            Instruction::Wait(_) | Instruction::Host(_) => None,
        })
        .collect()
}

fn after(plan: &Plan) -> Vec<Vec<u32>> {
    issues(plan, plan.program(0)).into_iter().map(|(_, after)| after).collect()
}

#[test]
fn a_reference_is_the_one_of_this_iteration() {
    let plan = plan(
        "{dp: {size: 2}}",
        "schedule: [{repeat: 3, do: [{run: g, on: dp, lane: side}, {run: c, lane: main, after: [g]}]}]",
    );
    assert_eq!(after(&plan), [vec![], vec![0], vec![], vec![2], vec![], vec![4]]);
}

#[test]
fn one_back_is_the_iteration_before_whether_the_item_stands_earlier_or_later() {
    let earlier = plan(
        "{dp: {size: 2}}",
        "schedule: [{repeat: 3, do: [{run: g, on: dp, lane: side}, {run: c, lane: main, after: ['g[-1]']}]}]",
    );
    assert_eq!(after(&earlier), [vec![], vec![], vec![], vec![0], vec![], vec![2]]);
    let later = plan(
        "{dp: {size: 2}}",
        "schedule: [{run: g, on: dp, lane: side}, {repeat: 2, do: [{run: c, lane: main, after: ['g[-1]']}, {run: g, on: dp, lane: side}]}]",
    );
    assert_eq!(after(&later), [vec![], vec![0], vec![], vec![2], vec![]]);
}

#[test]
fn references_reach_across_motifs() {
    let plan = plan(
        "{dp: {size: 2}}",
        "motifs: {a: [{run: g, on: dp, lane: side}], b: [{run: c, lane: main, after: [g, 'g[-1]']}]}
schedule: [{repeat: 2, do: a}, {repeat: 2, do: b}]",
    );
    assert_eq!(after(&plan), [vec![], vec![], vec![0, 1], vec![0, 1]]);
}

#[test]
fn what_the_lane_orders_anyway_is_left_out() {
    let plan = plan("{dp: {size: 2}}", "schedule: [{run: c, lane: main, as: a}, {run: c, lane: main, after: [a]}]");
    assert_eq!(after(&plan), [vec![], vec![]]);
}

#[test]
fn ranks_that_do_the_same_share_a_program() {
    let plan = plan("{dp: {size: 4}}", "schedule: [{run: c, lane: main, when: {dp: first}}, {run: c, lane: side}]");
    assert_eq!(plan.program_of, [0, 1, 1, 1]);
    assert_eq!(issues(&plan, plan.program(3)).len(), 1);
}

#[test]
fn every_rank_that_runs_on_an_axis_must_be_in_a_team() {
    let error = refused("{all: {size: 4}, ep: {teams: [[0, 3]]}}", "schedule: [{run: g, on: ep, lane: side}]");
    assert!(error.contains("rank 1 runs `g` on axis `ep` but is in none of its teams"), "{error}");
}

#[test]
fn a_condition_that_nobody_meets_is_refused() {
    let error = refused("{dp: {size: 3}}", "schedule: [{run: c, lane: main, when: {dp: 7}}]");
    assert!(error.contains("coordinate 7 of axis `dp` of size 3"), "{error}");
}

#[test]
fn host_time_takes_the_skew_of_its_rank() {
    let plan = plan("{dp: {size: 3}}", "schedule: [{host: 10us}]\nhost_skew: [1.5, 1, 1]");
    assert_eq!(plan.program(0).instructions, [Instruction::Host(15_000)]);
    assert_eq!(plan.program_of, [0, 1, 1]);
    let error = refused("{dp: {size: 2}}", "schedule: [{host: 10us}]\nhost_skew: [1.5, 1, 1]");
    assert!(error.contains("host_skew has 3 factors for 2 ranks"), "{error}");
}

#[test]
fn every_rank_has_one_role() {
    let role = |name: &str, when: &str| format!("  {name}: {{when: {when}, schedule: [{{run: c, lane: main}}]}}\n");
    let two = format!("roles:\n{}{}", role("a", "{dp: first}"), role("b", "{dp: [0, 1]}"));
    assert!(refused("{dp: {size: 2}}", &two).contains("rank 0 has two roles: `a` and `b`"));
    let none = format!("roles:\n{}", role("a", "{dp: first}"));
    assert!(refused("{dp: {size: 2}}", &none).contains("rank 1 has no role"));
}

#[test]
fn communicators_come_in_one_global_order() {
    let plan = plan(
        "{dp: {size: 2}, tp: {size: 2}}",
        "schedule: [{run: r, on: tp, lane: side}, {run: g, on: dp, lane: main}, {run: g, on: dp, lane: side}]",
    );
    let all: Vec<_> = plan.communicators.iter().map(|c| (c.axis, c.lane, c.ranks.clone())).collect();
    assert_eq!(all[0], (0, 0, vec![0, 2]));
    assert_eq!(all[1], (0, 1, vec![0, 2]));
    assert_eq!(all[4], (1, 1, vec![0, 1]));
    assert_eq!(plan.communicator(3, 1, 1), Some(5));
}

#[test]
fn a_size_that_no_team_can_hold_is_refused() {
    let wide = pattern("{dp: {size: 2}}", "schedule: [{run: g, on: dp, lane: side}]");
    let error = Plan::new(&wide, &[AxisSize { name: "dp".into(), size: 5 }]).unwrap_err().to_string();
    assert!(error.contains("all_gather of 96 B does not divide into 5 ranks"), "{error}");
}

#[test]
fn collectives_must_meet_in_the_same_order() {
    let swapped = "roles:
  a: {when: {dp: 0}, schedule: [{run: g, on: dp, lane: side}, {run: r, on: dp, lane: side}]}
  b: {when: {dp: 1}, schedule: [{run: r, on: dp, lane: side}, {run: g, on: dp, lane: side}]}";
    let error = refused("{dp: {size: 2}}", swapped);
    assert!(error.contains("collective 1 is `g` on rank 0 but `r` on rank 1"), "{error}");
    let missing = "schedule: [{run: g, on: dp, lane: side, when: {dp: not last}}]";
    let error = refused("{dp: {size: 3}}", missing);
    assert!(error.contains("rank 0 issues `g` as collective 1 but rank 2 issues only 0"), "{error}");
    let error = refused("{dp: {size: 3}}", &missing.replace("not last", "last"));
    assert!(error.contains("rank 2 issues `g` as collective 1 but rank 0 issues only 0"), "{error}");
}

#[test]
fn sends_must_meet_receives_of_the_same_size() {
    assert_eq!(plan("{pp: {size: 4}}", "schedule: [{run: next, on: pp, lane: side}]").world.size(), 4);
    let error = refused("{pp: {size: 2}}", "schedule: [{run: push, on: pp, lane: side, when: {pp: first}}]");
    assert!(error.contains("rank 0 sends to rank 1 once, which receives 0 times"), "{error}");
    let sizes = "schedule: [{run: push, on: pp, lane: side, when: {pp: first}}, {run: pull_wide, on: pp, lane: side, when: {pp: last}}]";
    let error = refused("{pp: {size: 2}}", sizes);
    assert!(error.contains("8 B of f32 here and 16 B of f32 there"), "{error}");
}

#[test]
fn a_step_that_would_deadlock_is_refused() {
    // Rank 0 waits on the host for its gather before it issues the scatter; rank 1 the other way round, on other lanes.
    let crossed = "roles:
  a: {when: {dp: 0}, schedule: [{run: g, on: dp, lane: side}, {wait: g}, {run: r, on: dp, lane: main}]}
  b: {when: {dp: 1}, schedule: [{run: r, on: dp, lane: main}, {wait: r}, {run: g, on: dp, lane: side}]}";
    assert!(refused("{dp: {size: 2}}", crossed).contains("would deadlock"));
    // The push of rank 0 ends only when the pull of rank 1 has started, which waits for a gather that waits for the push.
    let rendezvous = "roles:
  a: {when: {dp: 0}, schedule: [{run: push, on: dp, lane: side}, {run: g, on: dp, lane: main, after: [push]}]}
  b: {when: {dp: 1}, schedule: [{run: g, on: dp, lane: main}, {run: pull, on: dp, lane: side, after: [g]}]}";
    assert!(refused("{dp: {size: 2}}", rendezvous).contains("would deadlock"));
}

#[test]
fn a_ring_deadlocks_where_a_line_does_not() {
    // All ranks have one program, so only the ranks themselves tell a line from a ring.
    let blocks = |wrap: bool| {
        let mut pattern =
            pattern("{pp: {size: 4}}", "schedule: [{run: pull, on: pp, lane: side}, {run: push, on: pp, lane: side}]");
        for block in &mut pattern.blocks {
            if let maestro_pattern::Work::P2p { wrap: ring, .. } = &mut block.work {
                *ring = wrap;
            }
        }
        pattern
    };
    assert_eq!(Plan::new(&blocks(false), &[]).unwrap().programs.len(), 1);
    let error = Plan::new(&blocks(true), &[]).unwrap_err().to_string();
    assert!(error.contains("would deadlock: on rank 0, `pull`"), "{error}");
}

#[test]
fn a_program_that_unrolls_without_end_is_refused() {
    let error = refused("{dp: {size: 1}}", "schedule: [{repeat: 100000, do: [{repeat: 100000, do: [{host: 1us}]}]}]");
    assert!(error.contains("unrolls to more than"), "{error}");
}

#[test]
fn motifs_that_double_each_other_are_counted_before_they_are_put_in_place() {
    let mut motifs: String = (0..30).map(|i| format!("  m{i}: [{{do: m{0}}}, {{do: m{0}}}]\n", i + 1)).collect();
    motifs.push_str("  m30: [LAST]\nschedule: [{do: m0}, {run: c, lane: main}]");
    let error = refused("{dp: {size: 2}}", &format!("motifs:\n{}", motifs.replace("LAST", "{run: c, lane: main}")));
    assert!(error.contains("unrolls to more than 10000000 items"), "{error}");
    let none = plan("{dp: {size: 2}}", &format!("motifs:\n{}", motifs.replace("LAST", "")));
    assert_eq!(none.program(0).instructions.len(), 1);
}

#[test]
fn loops_that_issue_nothing_are_skipped() {
    let plan = plan(
        "{dp: {size: 2}}",
        "schedule:
  - {repeat: 4294967296, do: []}
  - {repeat: 4294967296, do: [{repeat: 4294967296, do: []}, {wait: []}]}
  - {repeat: 4294967296, do: [{host: 1us, when: {dp: last}}], when: {dp: first}}
  - {run: c, lane: main}",
    );
    assert_eq!([0, 1].map(|rank| plan.program(rank).instructions.len()), [1, 1]);
}

/// Motifs that do the next one, `deep` of them, written first to last or last to first.
fn chain(deep: usize, backwards: bool) -> String {
    let mut motifs: Vec<String> = (1..deep).map(|i| format!("  m{i}: [{{do: m{}}}]\n", i + 1)).collect();
    motifs.push(format!("  m{deep}: [{{run: c, lane: main}}]\n"));
    if backwards {
        motifs.reverse();
    }
    format!("motifs:\n{}schedule: [{{do: m1}}]", motifs.concat())
}

#[test]
fn motifs_nest_so_deep_and_no_deeper() {
    for backwards in [false, true] {
        let text = |deep| pattern_text("{dp: {size: 2}}", &chain(deep, backwards));
        let pattern = Pattern::from_yaml(&text(64)).unwrap();
        assert_eq!(Plan::new(&pattern, &[]).unwrap().program(0).instructions.len(), 1);
        for deep in [65, 24_000] {
            let error = Pattern::from_yaml(&text(deep)).unwrap_err().to_string();
            assert!(error.contains("`do` nests more than 64 deep"), "{error}");
        }
    }
}

#[test]
fn the_same_mistake_gives_the_same_sentence() {
    let items: String = ["g3", "g1", "g4", "g2"].map(|g| format!("  - {{run: {g}, on: dp, lane: side}}\n")).concat();
    let blocks: String = (1..5).map(|i| format!("  g{i}: {{all_gather: {{size: 1000, dtype: f32}}}}\n")).collect();
    let text = pattern_text("{dp: {size: 3}}", &format!("schedule:\n{items}"))
        .replace("blocks:\n", &format!("blocks:\n{blocks}"));
    for _ in 0..20 {
        let error = Plan::new(&Pattern::from_yaml(&text).unwrap(), &[]).unwrap_err().to_string();
        assert!(error.contains("block `g1`"), "{error}");
    }
    let text = text.replace("schedule:\n", "schedule:\n  - {wait: zzzzzzzzz}\n");
    for _ in 0..20 {
        let error = Pattern::from_yaml(&text).unwrap_err().to_string();
        assert!(error.contains("known here: g1, g2, g3, g4"), "{error}");
    }
}

#[test]
fn plans_that_no_memory_holds_are_refused() {
    let skew: Vec<String> = (0..512).map(|i| format!("{}", 1.0 + f64::from(i) / 1000.0)).collect();
    let hosts = format!("schedule: [{{repeat: 1000000, do: [{{host: 1us}}]}}]\nhost_skew: [{}]", skew.join(", "));
    let error = refused("{dp: {size: 512}}", &hosts);
    assert!(error.contains("the 512 distinct programs unroll to 512000000 items"), "{error}");
    // Two ranks that pull and then push seem to wait for each other until all ranks are looked at, which are too many.
    let many = "schedule:
  - {repeat: 200000, do: [{host: 1us}]}
  - {run: pull, on: pp, lane: side, when: {pp: [0, 1]}}
  - {run: push, on: pp, lane: side, when: {pp: [0, 1]}}";
    let error = refused("{dp: {size: 512}, pp: {teams: [[0, 1]]}}", many);
    assert!(error.contains("instructions, references and transfers are to be put in order"), "{error}");
}

#[test]
fn a_plan_of_512_ranks_with_hosts_of_their_own() {
    let items: String = (0..100)
        .map(|i| {
            format!(
                "  - {{run: next, on: pp, lane: main, as: n{i}}}
  - {{host: 3us}}
  - {{run: meet, on: dp, lane: side, as: m{i}, after: [n{i}]}}
  - {{run: c, lane: main, when: {{pp: last}}, after: [m{i}]}}
"
            )
        })
        .collect();
    let skew: Vec<String> = (0..512).map(|i| format!("{}", 1.0 + f64::from(i) / 1000.0)).collect();
    let schedule = format!("schedule:\n{items}host_skew: [{}]", skew.join(", "));
    let text = pattern_text("{dp: {size: 64}, pp: {size: 8}}", &schedule);
    let text = text.replace("blocks:\n", "blocks:\n  meet: {all_reduce: {size: 64, dtype: f32}}\n");
    let plan = Plan::new(&Pattern::from_yaml(&text).unwrap(), &[]).unwrap();
    assert_eq!((plan.world.size(), plan.programs.len(), plan.communicators.len()), (512, 512, 64 + 8));
    assert_eq!(plan.program_of, (0..512).collect::<Vec<u32>>());
    for rank in [0, 6, 7, 511] {
        let program = plan.program(rank);
        // The last stage computes as well.
        let (round, last) = if rank % 8 == 7 { (4, true) } else { (3, false) };
        assert_eq!(program.instructions.len(), 100 * round);
        for (i, instructions) in program.instructions.chunks(round).enumerate() {
            let first = (i * round) as u32;
            let host = (3_000.0 * (1.0 + f64::from(rank) / 1000.0)).round() as u64;
            assert_eq!(instructions[1], Instruction::Host(host));
            let after: Vec<_> = instructions
                .iter()
                .filter_map(|i| match i {
                    Instruction::Issue { after, instance, .. } => Some((after.as_slice(), *instance)),
                    Instruction::Wait(_) | Instruction::Host(_) => None,
                })
                .collect();
            let waited = [first];
            let met = [first + 2];
            let expected: [(&[u32], u32); 3] = [(&[], i as u32), (&waited, i as u32), (&met, i as u32)];
            assert_eq!(after, expected[..if last { 3 } else { 2 }]);
        }
    }
}
