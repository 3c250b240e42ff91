//! One copy of each name: a capture repeats a few hundred kernels' names, up to kilobytes long, thousands of times.

use std::collections::HashSet;
use std::sync::Arc;

/// Names seen so far.
#[derive(Default)]
pub(super) struct Names {
    seen: HashSet<Arc<str>>,
}

impl Names {
    /// The shared copy of `name`.
    pub(super) fn share(&mut self, name: &str) -> Arc<str> {
        if let Some(shared) = self.seen.get(name) {
            return Arc::clone(shared);
        }
        let shared: Arc<str> = name.into();
        self.seen.insert(Arc::clone(&shared));
        shared
    }
}
