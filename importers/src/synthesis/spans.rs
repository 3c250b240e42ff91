//! Equal stretches of a sequence of keys, found without comparing key by key: what finds loops and motifs in long
//! schedules in n log n steps.

/// A number for every span of 1, 2, 4, ... keys, the same for equal spans only, so that how far the keys at two places
/// are equal takes a step per power of two and not one per key.
pub(crate) struct Spans(Vec<Vec<u32>>);

impl Spans {
    pub(crate) fn new(keys: &[u32]) -> Self {
        let mut levels = Vec::new();
        let (mut distinct, mut level) = numbered(keys.iter().map(|key| u64::from(*key)));
        // Spans that the end cuts off differ from all others, so at some length all do.
        while distinct < keys.len() {
            let half = 1 << levels.len();
            let pair = |at: usize| u64::from(level[at]) << 32 | level.get(at + half).map_or(0, |n| u64::from(*n) + 1);
            let (more, next) = numbered((0..keys.len()).map(pair));
            levels.push(std::mem::replace(&mut level, next));
            distinct = more;
        }
        levels.push(level);
        Self(levels)
    }

    /// How many keys from `a` on are those from `b` on, another place.
    pub(crate) fn ahead(&self, a: usize, b: usize) -> usize {
        let mut length = 0;
        for (power, level) in self.0.iter().enumerate().rev() {
            let number = |from: usize| level.get(from + length);
            if number(a).is_some() && number(a) == number(b) {
                length += 1 << power;
            }
        }
        length
    }

    /// How many keys right before `a` are those right before `b`, another place.
    pub(crate) fn behind(&self, a: usize, b: usize) -> usize {
        let mut length = 0;
        for (power, level) in self.0.iter().enumerate().rev() {
            let number = |to: usize| to.checked_sub(length + (1 << power)).map(|from| level[from]);
            if number(a).is_some() && number(a) == number(b) {
                length += 1 << power;
            }
        }
        length
    }

    /// All places in the order of what stands from there on.
    pub(crate) fn sorted(&self) -> Vec<usize> {
        let last = self.0.last().map(Vec::as_slice).unwrap_or_default();
        let mut places = vec![0; last.len()];
        last.iter().enumerate().for_each(|(place, number)| places[*number as usize] = place);
        places
    }
}

/// How many distinct values there are, and the number of each in their order.
fn numbered(values: impl Iterator<Item = u64>) -> (usize, Vec<u32>) {
    let mut sorted: Vec<(u64, u32)> = values.zip(0..).collect();
    sorted.sort_unstable();
    let mut numbers = vec![0; sorted.len()];
    let mut distinct = 0;
    for equal in sorted.chunk_by(|(a, _), (b, _)| a == b) {
        equal.iter().for_each(|(_, place)| numbers[*place as usize] = distinct);
        distinct += 1;
    }
    (distinct as usize, numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_tell_how_far_keys_are_equal() {
        let spans = Spans::new(&[7, 3, 7, 3, 7, 9, 3, 7]);
        assert_eq!((spans.ahead(0, 2), spans.ahead(1, 6), spans.ahead(0, 1)), (3, 2, 0));
        assert_eq!((spans.behind(2, 4), spans.behind(5, 8), spans.behind(0, 2)), (2, 2, 0));
        assert_eq!(spans.sorted(), [6, 1, 3, 7, 0, 2, 4, 5]);
    }
}
