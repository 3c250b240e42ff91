//! What ran beside what: for how long other blocks were at work during each execution of a step.
//!
//! Times are those of *windows*: the part of an execution that slowdown compares, so of communication the transfer, at
//! the end of its latency. Who waits for a late rank moves nothing, disturbs nobody and is disturbed by nobody.

/// A window of a rank's step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    /// When it began, in nanoseconds.
    pub start_ns: u64,
    /// When it ended.
    pub end_ns: u64,
    /// Who it is: executions of one group have one number.
    pub who: u32,
}

/// A window that others ran beside.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Active {
    window: usize,
    who: u32,
    /// Others with the time for which at least one of their windows was open.
    beside: Vec<(u32, u64)>,
}

/// Tells `found` of every window, by its place, and of everyone that ran beside it how long: the length of the union of
/// their windows within it. Windows of its own group count as others, itself does not.
pub(crate) fn beside(windows: &[Window], mut found: impl FnMut(usize, u32, u64)) {
    let mut starts: Vec<usize> = (0..windows.len()).filter(|w| windows[*w].start_ns < windows[*w].end_ns).collect();
    let mut ends = starts.clone();
    starts.sort_by_key(|w| windows[*w].start_ns);
    ends.sort_by_key(|w| windows[*w].end_ns);

    let mut active: Vec<Active> = Vec::new();
    // Lists of those that ended, to be used again.
    let mut spare: Vec<Vec<(u32, u64)>> = Vec::new();
    let mut starts = starts.into_iter().peekable();
    let mut now = 0;
    for ending in ends {
        let end = windows[ending].end_ns;
        // What begins when another ends does not run beside it, so it comes after.
        while let Some(begun) = starts.next_if(|w| windows[*w].start_ns < end) {
            pass(&mut active, windows[begun].start_ns - now);
            now = windows[begun].start_ns;
            active.push(Active { window: begun, who: windows[begun].who, beside: spare.pop().unwrap_or_default() });
        }
        pass(&mut active, end - now);
        now = end;
        if let Some(place) = active.iter().position(|one| one.window == ending) {
            let mut one = active.swap_remove(place);
            one.beside.drain(..).for_each(|(who, ns)| found(one.window, who, ns));
            spare.push(one.beside);
        }
    }
}

/// Lets `ns` pass for all that are open: each was beside everyone else.
fn pass(active: &mut [Active], ns: u64) {
    if ns == 0 || active.len() < 2 {
        return;
    }
    for one in 0..active.len() {
        for other in (0..active.len()).filter(|other| *other != one) {
            let who = active[other].who;
            // Two windows of one group at once are still one time.
            if (0..other).any(|earlier| earlier != one && active[earlier].who == who) {
                continue;
            }
            match active[one].beside.iter_mut().find(|(known, _)| *known == who) {
                Some((_, sum)) => *sum += ns,
                None => active[one].beside.push((who, ns)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(who: u32, start_ns: u64, end_ns: u64) -> Window {
        Window { start_ns, end_ns, who }
    }

    fn all(windows: &[Window]) -> Vec<(usize, u32, u64)> {
        let mut all = Vec::new();
        beside(windows, |window, who, ns| all.push((window, who, ns)));
        all.sort_unstable();
        all
    }

    #[test]
    fn overlaps_count_for_both_sides() {
        let found = all(&[window(0, 0, 100), window(1, 60, 160), window(2, 150, 170)]);
        assert_eq!(found, [(0, 1, 40), (1, 0, 40), (1, 2, 10), (2, 1, 10)]);
    }

    #[test]
    fn windows_of_one_group_are_a_union_and_see_each_other() {
        // 20 to 40 and 30 to 60 are 40 ns beside the first; to each other they are 10.
        let found = all(&[window(0, 0, 100), window(1, 20, 40), window(1, 30, 60)]);
        assert_eq!(found, [(0, 1, 40), (1, 0, 20), (1, 1, 10), (2, 0, 30), (2, 1, 10)]);
    }

    #[test]
    fn what_touches_or_is_empty_is_beside_nothing() {
        assert_eq!(all(&[window(0, 0, 10), window(1, 10, 20), window(2, 5, 5), window(3, 30, 40)]), []);
        assert_eq!(all(&[]), []);
    }

    #[test]
    fn equal_windows_are_wholly_beside_each_other() {
        assert_eq!(all(&[window(0, 5, 9), window(1, 5, 9)]), [(0, 1, 4), (1, 0, 4)]);
    }
}
