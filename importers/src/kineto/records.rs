//! What the host recorded of each communication call, put together from the rows that nest around its launch.
//!
//! One call is up to three rows, one inside the other: the operator (`c10d::allreduce_`), the record
//! (`record_param_comms`) and the library's annotation (`nccl:all_reduce`). Since 2024 the record says everything.
//! Before, it said nothing, and the annotation's name and the shapes of its inputs tell; where that is missing, too,
//! the operator's. All that becomes one list of records here, so that nothing behind the reader knows of years.

use std::collections::HashMap;

use maestro_pattern::CollectiveKind;

use super::comm::{self, element};
use super::event::{Event, Raw, integer};
use super::rows::{Rows, time};
use super::tensors::Tensors;
use crate::Notes;
use crate::capture::{Annotation, CommFacts, CommOp, CommRecord, RecordSource};

/// The row that describes a communication call.
pub(super) const RECORD: &str = "record_param_comms";

/// The annotation around the launch of a batch of calls.
const BATCH: &str = "nccl:coalesced";

/// What annotations of a communication library begin with.
const LIBRARIES: [&str; 2] = ["nccl:", "xccl:"];

/// What operators that communicate begin with.
pub(super) const OPERATORS: &str = "c10d::";

/// A row around a launch, beside the records that say everything.
pub(super) struct Hint {
    /// What it says, its sizes as far as shapes tell; `None`: a record that does not name its collective.
    facts: Option<CommFacts>,
    source: RecordSource,
    pub(super) thread: i64,
    start_ns: i64,
    end_ns: i64,
    external_id: Option<u64>,
    function_id: Option<u64>,
    /// Whether it was given a tensor. Calls that wait are given none.
    tensor: bool,
}

/// Whether an annotation of this name tells of communication.
pub(super) fn is_library(name: &str) -> bool {
    name != BATCH && LIBRARIES.iter().any(|library| name.starts_with(library))
}

impl Rows {
    /// Takes a `record_param_comms`.
    pub(super) fn record(&mut self, event: &Event<'_>, notes: &mut Notes) {
        let args = event.args(notes);
        let Some(time) = time(event, notes) else { return };
        let (thread, start_ns, end_ns) = (self.thread(event), time.start_ns, time.end_ns());
        let (external_id, function_id) = (integer(args.external_id), function(args.function_id));
        match comm::facts(&args, &mut self.names, notes) {
            Some(facts) if comm::is_bracket(&facts.recorded_name) => {
                // What closes a batch launches it, as the annotation does that other versions write.
                if facts.recorded_name.to_ascii_lowercase().starts_with("end") {
                    self.annotations.push(Annotation { name: self.names.share(BATCH), thread, start_ns, end_ns });
                }
            }
            Some(mut facts) => {
                self.groups.take(&facts, &args);
                let tensors = Tensors::of(&args, 0);
                if base_is_coalesced(&facts.recorded_name) {
                    gather_up(&mut facts, tensors.elements);
                }
                let source = RecordSource::Params;
                self.records.push(CommRecord { facts, thread, start_ns, end_ns, external_id, source, function_id });
            }
            None => {
                let tensor = Tensors::of(&args, 0).any;
                let (facts, source) = (None, RecordSource::Params);
                let hint = Hint { facts, source, thread, start_ns, end_ns, external_id, function_id, tensor };
                self.hints.push(hint);
            }
        }
    }

    /// Takes an annotation or an operator that tells of communication.
    pub(super) fn hint(&mut self, event: &Event<'_>, notes: &mut Notes) {
        let name = event.name();
        let (source, call) = match name.strip_prefix(OPERATORS) {
            Some(call) => (RecordSource::Operator, call),
            None => (RecordSource::Annotation, name.split_once(':').map_or(&*name, |(_, call)| call)),
        };
        let (call, peer) = peer(call);
        let op = comm::op(call);
        if op == CommOp::Other || op == CommOp::Wait {
            return;
        }
        let args = event.args(notes);
        let Some(time) = time(event, notes) else { return };
        let mut facts = CommFacts::new(op, self.names.share(&name));
        facts.group_peer = peer;
        // These operators write into their first argument and read their second; all others read their first.
        let two_sided = source == RecordSource::Operator && call.trim_end_matches('_').ends_with("base");
        let (input, output) = if two_sided { (1, Some(0)) } else { (0, None) };
        let inputs = if source == RecordSource::Annotation { Tensors::all(&args) } else { Tensors::of(&args, input) };
        let numbers = facts.set_element(element(&inputs.dtype), &inputs.dtype, &mut self.names);
        let same = matches!(
            op,
            CommOp::Collective(CollectiveKind::AllReduce | CollectiveKind::Broadcast | CollectiveKind::Reduce)
                | CommOp::Send { .. }
                | CommOp::Recv { .. }
        );
        facts.in_elements = inputs.elements.saturating_mul(numbers);
        facts.out_elements = match output {
            Some(at) => Tensors::of(&args, at).elements.saturating_mul(numbers),
            None if same => facts.in_elements,
            None => 0,
        };
        let thread = self.thread(event);
        self.hints.push(Hint {
            facts: Some(facts),
            source,
            thread,
            start_ns: time.start_ns,
            end_ns: time.end_ns(),
            external_id: integer(args.external_id),
            function_id: function(args.function_id),
            tensor: inputs.any,
        });
    }

    /// Puts the rows of each call together.
    pub(super) fn settle_records(&mut self, notes: &mut Notes) {
        let hints = std::mem::take(&mut self.hints);
        // Where records name their calls every call has one, and what stands alone is another library's.
        let named = !self.records.is_empty();
        let mut threads: HashMap<i64, Vec<Row>> = HashMap::new();
        for record in self.records.drain(..) {
            threads.entry(record.thread).or_default().push(Row::Record(record));
        }
        for hint in hints {
            threads.entry(hint.thread).or_default().push(Row::Hint(hint));
        }
        let mut threads: Vec<(i64, Vec<Row>)> = threads.into_iter().collect();
        threads.sort_by_key(|(thread, _)| *thread);
        for (_, rows) in threads {
            settle_thread(rows, named, &mut self.records, notes);
        }
    }
}

/// Zero stands for none.
fn function(raw: Raw<'_>) -> Option<u64> {
    integer(raw).filter(|id| *id != 0)
}

/// `send 0->3` -> (`send`, 3): the name without its ranks, and the rank of the peer in the group.
fn peer(call: &str) -> (&str, Option<u32>) {
    let Some((call, ranks)) = call.split_once(' ') else { return (call, None) };
    let peer = ranks.split_once("->").or_else(|| ranks.split_once("<-")).map(|(_, peer)| peer);
    (call, peer.and_then(|peer| peer.trim().parse().ok()))
}

fn base_is_coalesced(name: &str) -> bool {
    name.contains("coalesced")
}

/// Makes a call on several tensors one of all their elements: some versions count those of one tensor only.
fn gather_up(facts: &mut CommFacts, elements: u64) {
    let before = facts.in_elements;
    if elements <= before {
        return;
    }
    let ratio = if before > 0 && facts.out_elements.is_multiple_of(before) { facts.out_elements / before } else { 1 };
    let shrink = if facts.out_elements > 0 && before.is_multiple_of(facts.out_elements) {
        before / facts.out_elements
    } else {
        1
    };
    facts.in_elements = elements;
    facts.out_elements = elements.saturating_mul(ratio.max(1)) / shrink.max(1);
}

/// A row of a thread.
enum Row {
    Record(CommRecord),
    Hint(Hint),
}

impl Row {
    fn span(&self) -> (i64, i64) {
        match self {
            Self::Record(record) => (record.start_ns, record.end_ns),
            Self::Hint(hint) => (hint.start_ns, hint.end_ns),
        }
    }

    /// Which is around which of those that begin and end together.
    fn depth(&self) -> u8 {
        match self {
            Self::Hint(hint) if hint.source == RecordSource::Operator => 0,
            Self::Record(_) => 1,
            Self::Hint(hint) => 1 + u8::from(hint.source == RecordSource::Annotation),
        }
    }
}

/// One call, as its rows were met from the outside in.
struct Call {
    operator: Option<Hint>,
    records: Vec<CommRecord>,
    unnamed: Option<Hint>,
    annotations: Vec<Hint>,
    end_ns: i64,
}

fn settle_thread(mut rows: Vec<Row>, named: bool, records: &mut Vec<CommRecord>, notes: &mut Notes) {
    rows.sort_by_key(|row| (row.span().0, std::cmp::Reverse(row.span().1), row.depth()));
    let mut call: Option<Call> = None;
    for row in rows {
        let (start, end) = row.span();
        let inside = call.as_ref().is_some_and(|call| start <= call.end_ns && end <= call.end_ns);
        if !inside && let Some(done) = call.take() {
            done.finish(named, records, notes);
        }
        let call = call.get_or_insert_with(|| Call {
            operator: None,
            records: Vec::new(),
            unnamed: None,
            annotations: Vec::new(),
            end_ns: end,
        });
        match row {
            Row::Record(record) => call.records.push(record),
            Row::Hint(hint) if hint.facts.is_none() => call.unnamed = Some(hint),
            Row::Hint(hint) if hint.source == RecordSource::Operator => call.operator = Some(hint),
            Row::Hint(hint) => call.annotations.push(hint),
        }
    }
    if let Some(done) = call {
        done.finish(named, records, notes);
    }
}

impl Call {
    fn finish(self, named: bool, records: &mut Vec<CommRecord>, notes: &mut Notes) {
        let barrier = CommOp::Collective(CollectiveKind::Barrier);
        let hints = || self.annotations.iter().chain(&self.operator).filter_map(|hint| hint.facts.as_ref());
        let is_barrier = hints().any(|facts| facts.op == barrier) || self.records.iter().any(|r| r.facts.op == barrier);
        if self.records.is_empty() {
            if !named || self.unnamed.is_some() {
                self.unrecorded(is_barrier, records, notes);
            }
            return;
        }
        let single = self.records.len() == 1;
        let mut kept: Vec<CommRecord> = Vec::new();
        for mut record in self.records.iter().cloned() {
            if is_barrier && is_tiny_reduction(&record.facts) {
                record.facts.op = barrier;
            }
            // Of hints around several records it is not known which they are about.
            for facts in hints() {
                if !single || !same_call(&record.facts, facts) {
                    continue;
                }
                record.facts.complete(facts);
                if base_is_coalesced(&record.facts.recorded_name) {
                    gather_up(&mut record.facts, facts.in_elements);
                }
            }
            // A front end and a back end that both record leave a pair, one inside the other: a single call. Kernels
            // carry the inner one's id.
            match kept.last_mut().filter(|outer| is_pair(outer, &record)) {
                Some(outer) => {
                    outer.facts.complete(&record.facts);
                    outer.external_id = record.external_id.or(outer.external_id);
                    outer.function_id = outer.function_id.or(record.function_id);
                    notes.add("communication records inside one of the same call, taken as one", || {
                        record.facts.recorded_name.to_string()
                    });
                }
                None => kept.push(record),
            }
        }
        records.extend(kept);
    }

    /// A call whose record names nothing, or that has none.
    fn unrecorded(self, is_barrier: bool, records: &mut Vec<CommRecord>, notes: &mut Notes) {
        let Some(told) = self.annotations.first().or(self.operator.as_ref()) else {
            let Some(unnamed) = self.unnamed else { return };
            if unnamed.tensor {
                notes.add("communication records that do not name their collective", || {
                    format!("at {} ns on thread {}", unnamed.start_ns, unnamed.thread)
                });
                return;
            }
            records.push(unnamed.into_record(CommFacts::new(CommOp::Wait, "wait".into()), RecordSource::Params));
            return;
        };
        let Some(mut facts) = told.facts.clone() else { return };
        let source = told.source;
        if let Some(operator) = self.operator.as_ref().and_then(|operator| operator.facts.as_ref())
            && same_call(&facts, operator)
        {
            // Only operators are given the output.
            if facts.out_elements == 0 {
                facts.out_elements = operator.out_elements;
            }
            facts.complete(operator);
        }
        if is_barrier && is_tiny_reduction(&facts) {
            facts.op = CommOp::Collective(CollectiveKind::Barrier);
        }
        // Ids are the record's: what it launches carries them.
        let row = self.unnamed.or(self.annotations.into_iter().next()).or(self.operator);
        records.extend(row.map(|row| row.into_record(facts, source)));
    }
}

impl Hint {
    fn into_record(self, facts: CommFacts, source: RecordSource) -> CommRecord {
        CommRecord {
            facts,
            thread: self.thread,
            start_ns: self.start_ns,
            end_ns: self.end_ns,
            external_id: self.external_id,
            source,
            function_id: self.function_id,
        }
    }
}

/// Whether this is what a barrier runs: a reduction of nothing, or of one number.
fn is_tiny_reduction(facts: &CommFacts) -> bool {
    facts.op == CommOp::Collective(CollectiveKind::AllReduce) && facts.in_elements <= 1
}

/// Whether two rows may be about one call.
fn same_call(a: &CommFacts, b: &CommFacts) -> bool {
    std::mem::discriminant(&a.op) == std::mem::discriminant(&b.op)
        && match (a.op, b.op) {
            (CommOp::Collective(a), CommOp::Collective(b)) => a == b,
            _ => true,
        }
}

/// Whether `inner` repeats `outer`, inside which it is.
fn is_pair(outer: &CommRecord, inner: &CommRecord) -> bool {
    let sizes = |facts: &CommFacts| (facts.in_elements, facts.out_elements);
    let (a, b) = (&outer.facts, &inner.facts);
    inner.start_ns >= outer.start_ns
        && inner.end_ns <= outer.end_ns
        && a.op != CommOp::Wait
        && same_call(a, b)
        && (sizes(a) == sizes(b) || sizes(a) == (0, 0) || a.op == CommOp::Collective(CollectiveKind::Barrier))
        && (a.dtype == b.dtype || a.dtype.is_none() || b.dtype.is_none() || sizes(a) == (0, 0))
}
