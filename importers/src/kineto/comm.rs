//! What the arguments of a kernel or of `record_param_comms` say about a communication.
//!
//! Both carry the same keys. Names and element types are PyTorch's; nothing is taken from a kernel's name.

use maestro_pattern::{CollectiveKind, Dtype};

use super::event::{Args, List, Raw, bare, integer, text};
use super::names::Names;
use crate::Notes;
use crate::capture::{CommFacts, CommOp};

/// Endings that tell how a collective is called, not what it does; none is part of a base name.
const VARIANTS: [&str; 9] = ["coalesced", "intotensor", "tensor", "single", "base", "oop", "sparse", "uneven", "v"];

/// What `args` say, if they name a collective.
pub(super) fn facts(args: &Args<'_>, names: &mut Names, notes: &mut Notes) -> Option<CommFacts> {
    let recorded_name = text(args.collective).filter(|name| !name.is_empty())?;
    let mut facts = CommFacts::new(op(&recorded_name), names.share(&recorded_name));
    if facts.op == CommOp::Other && !is_bracket(&recorded_name) {
        notes.add("communications of a name that is not known", || recorded_name.clone().into_owned());
    }
    match &mut facts.op {
        CommOp::Send { to: peer } => *peer = integer(args.destination),
        CommOp::Recv { from: peer } => *peer = integer(args.source),
        CommOp::Collective(_) | CommOp::Wait | CommOp::Other => {}
    }
    if matches!(facts.op, CommOp::Send { .. } | CommOp::Recv { .. }) {
        // Of a collective this is the rank of the caller.
        facts.group_peer = integer(args.rank);
    }
    let element = element(bare(args.dtype));
    if element.is_none() && !matches!(facts.op, CommOp::Wait | CommOp::Other) {
        notes.add("communications of an element type that is not known", || {
            format!("{recorded_name} of `{}`", bare(args.dtype))
        });
    }
    let numbers = facts.set_element(element, bare(args.dtype), names);
    let count = |raw| integer::<u64>(raw).unwrap_or(0).saturating_mul(numbers);
    (facts.in_elements, facts.out_elements) = (count(args.in_elements), count(args.out_elements));
    for (list, elements, splits) in [
        (args.in_splits, facts.in_elements, &mut facts.in_splits),
        (args.out_splits, facts.out_elements, &mut facts.out_splits),
    ] {
        match List::read(list) {
            List::Whole(rows) => *splits = scaled(rows, elements, notes),
            List::Cut => {
                facts.splits_cut = true;
                notes.add("communications whose list of splits is cut", || format!("one of {elements} elements"));
            }
        }
    }
    if facts.splits_cut {
        // One side alone would pass for the whole truth.
        facts.in_splits.clear();
        facts.out_splits.clear();
    }
    facts.ranks = match List::read(args.ranks) {
        List::Whole(ranks) if ranks.is_empty() => None,
        List::Whole(ranks) => ranks.into_iter().map(|rank| u32::try_from(rank).ok()).collect(),
        // The reader recovers it once all groups are known.
        List::Cut => None,
    };
    let mut shared = |name: Raw<'_>| text(name).filter(|name| !name.is_empty()).map(|name| names.share(&name));
    (facts.group_name, facts.group_desc) = (shared(args.group_name), shared(args.group_desc));
    facts.group_size = integer(args.group_size);
    facts.seq = integer(args.seq);
    Some(facts)
}

/// Whether a record only opens or closes a batch of others.
pub(crate) fn is_bracket(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.ends_with("coalescing") && (name.starts_with("start") || name.starts_with("end"))
}

impl CommFacts {
    /// Sets the element type, recorded as `name`; gives how many of the pattern's numbers one recorded element is.
    pub(super) fn set_element(&mut self, element: Option<Element>, name: &str, names: &mut Names) -> u64 {
        let Some(element) = element else { return 1 };
        self.dtype = Some(element.dtype);
        self.stands_for = element.stands.then(|| names.share(name));
        element.numbers
    }
}

/// Splits in elements. They are recorded in rows of the tensor: all rows together are all `elements`.
pub(crate) fn scaled(rows: Vec<u64>, elements: u64, notes: &mut Notes) -> Vec<u64> {
    if rows.is_empty() {
        return rows;
    }
    match rows.iter().try_fold(0u64, |sum, row| sum.checked_add(*row)) {
        Some(0) if elements == 0 => rows,
        Some(total) if total > 0 && elements.is_multiple_of(total) => {
            rows.iter().map(|row| row * (elements / total)).collect()
        }
        _ => {
            notes.add("communications whose splits do not add up", || format!("{rows:?} for {elements} elements"));
            Vec::new()
        }
    }
}

/// The operation of this name, its peer not known.
pub(crate) fn op(name: &str) -> CommOp {
    match base(name).as_str() {
        "allreduce" => CommOp::Collective(CollectiveKind::AllReduce),
        "allgather" => CommOp::Collective(CollectiveKind::AllGather),
        "reducescatter" => CommOp::Collective(CollectiveKind::ReduceScatter),
        "broadcast" => CommOp::Collective(CollectiveKind::Broadcast),
        "reduce" => CommOp::Collective(CollectiveKind::Reduce),
        "gather" => CommOp::Collective(CollectiveKind::Gather),
        "scatter" => CommOp::Collective(CollectiveKind::Scatter),
        "alltoall" => CommOp::Collective(CollectiveKind::AllToAll),
        "barrier" | "allreducebarrier" => CommOp::Collective(CollectiveKind::Barrier),
        "send" | "isend" => CommOp::Send { to: None },
        "recv" | "irecv" | "recvanysource" => CommOp::Recv { from: None },
        "wait" => CommOp::Wait,
        _ => CommOp::Other,
    }
}

/// `_reduce_scatter_base`, `reduce_scatter_tensor_coalesced` and their like without what varies: `reducescatter`.
fn base(name: &str) -> String {
    let mut name: String = name.chars().filter(|c| *c != '_').map(|c| c.to_ascii_lowercase()).collect();
    while !matches!(name.as_str(), "recv" | "irecv") {
        let Some(shorter) = VARIANTS.iter().find_map(|ending| name.strip_suffix(ending)) else { break };
        name.truncate(shorter.len());
    }
    name
}

/// The element type of a name of PyTorch's: c10's (`BFloat16`), or C++'s as operators record it (`c10::BFloat16`).
pub(super) fn dtype(name: &str) -> Option<Dtype> {
    element(name).filter(|element| element.numbers == 1 && !element.stands).map(|element| element.dtype)
}

/// What an element of a buffer is in the pattern's types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Element {
    pub dtype: Dtype,
    /// How many of `dtype` it is: a complex number is two.
    pub numbers: u64,
    /// Whether `dtype` is another type of the same size.
    pub stands: bool,
}

/// What an element of this type is: sizes are right of every type, values only of those that the pattern has, too.
pub(crate) fn element(name: &str) -> Option<Element> {
    let exact = |dtype| Some(Element { dtype, numbers: 1, stands: false });
    let pair = |dtype| Some(Element { dtype, numbers: 2, stands: false });
    let stand_in = |dtype| Some(Element { dtype, numbers: 1, stands: true });
    match name.strip_prefix("c10::").unwrap_or(name) {
        "Double" | "double" => exact(Dtype::F64),
        "Float" | "float" => exact(Dtype::F32),
        "Half" => exact(Dtype::F16),
        "BFloat16" => exact(Dtype::Bf16),
        "Float8_e4m3fn" => exact(Dtype::F8e4m3),
        "Float8_e5m2" => exact(Dtype::F8e5m2),
        // Another bias and no negative zero.
        "Float8_e4m3fnuz" => stand_in(Dtype::F8e4m3),
        "Float8_e5m2fnuz" => stand_in(Dtype::F8e5m2),
        "Float8_e8m0fnu" | "Float4_e2m1fn_x2" | "QUInt8" | "quint8" => stand_in(Dtype::U8),
        "QInt8" | "qint8" => stand_in(Dtype::I8),
        "QInt32" | "qint32" | "UInt32" | "unsigned int" => stand_in(Dtype::I32),
        "UInt64" | "unsigned long" => stand_in(Dtype::I64),
        "Short" | "short" | "short int" | "UInt16" | "unsigned short" => stand_in(Dtype::F16),
        "Long" | "long" | "long int" => exact(Dtype::I64),
        "Int" | "int" => exact(Dtype::I32),
        "Char" | "signed char" => exact(Dtype::I8),
        // NCCL sees booleans as bytes.
        "Byte" | "unsigned char" | "Bool" | "bool" => exact(Dtype::U8),
        "ComplexHalf" | "complex<c10::Half>" => pair(Dtype::F16),
        "ComplexFloat" | "complex<float>" => pair(Dtype::F32),
        "ComplexDouble" | "complex<double>" => pair(Dtype::F64),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(args: &str) -> (Option<CommFacts>, Notes) {
        let mut notes = Notes::default();
        let facts = facts(&Args::of(args), &mut Names::default(), &mut notes);
        (facts, notes)
    }

    #[test]
    fn every_spelling_of_a_collective_is_one() {
        for (kind, spellings) in [
            (CollectiveKind::AllReduce, "allreduce allreduce_coalesced allreduce_sparse all_reduce"),
            (
                CollectiveKind::AllGather,
                "all_gather allgather _allgather_base allgather_into_tensor_coalesced all_gather_single \
                 all_gather_into_tensor_coalesced allgather_coalesced all_gather_v",
            ),
            (
                CollectiveKind::ReduceScatter,
                "reduce_scatter reducescatter _reduce_scatter_base reduce_scatter_tensor_coalesced \
                 reduce_scatter_v reduce_scatter_single",
            ),
            (CollectiveKind::Broadcast, "broadcast _broadcast_oop"),
            (CollectiveKind::Reduce, "reduce _reduce_oop"),
            (CollectiveKind::Gather, "gather"),
            (CollectiveKind::Scatter, "scatter"),
            (CollectiveKind::AllToAll, "all_to_all all_to_allv alltoall alltoall_base all_to_all_single"),
            (CollectiveKind::Barrier, "barrier"),
        ] {
            for name in spellings.split_whitespace() {
                assert_eq!(op(name), CommOp::Collective(kind), "{name}");
            }
        }
        for name in ["startcoalescing", "coalesced", "v", "", "_", "tensor"] {
            assert_eq!(op(name), CommOp::Other, "{name}");
        }
    }

    #[test]
    fn sends_and_receives_know_their_peer() {
        let (facts, _) = read(r#"{"Collective name": "send", "dtype": "Half", "Dst Rank": 3, "Rank": 1}"#);
        assert_eq!(facts.unwrap().op, CommOp::Send { to: Some(3) });
        let (facts, _) = read(r#"{"Collective name": "recv", "dtype": "Half", "Src Rank": 2}"#);
        assert_eq!(facts.unwrap().op, CommOp::Recv { from: Some(2) });
    }

    #[test]
    fn splits_are_rows_and_become_elements() {
        let (facts, notes) = read(
            r#"{"Collective name": "all_to_allv", "dtype": "BFloat16", "In msg nelems": 16777216,
                "Out msg nelems": 19191808, "In split size": "[4757, 3435]", "Out split size": "[4757, 4614]"}"#,
        );
        let facts = facts.unwrap();
        assert_eq!(facts.in_splits, [4757 * 2048, 3435 * 2048]);
        assert_eq!(facts.out_splits, [4757 * 2048, 4614 * 2048]);
        assert!(notes.is_empty());
    }

    #[test]
    fn splits_that_cannot_be_right_are_noted_and_left_out() {
        for list in ["[1, 2]", "[0, 0]", "[18446744073709551615, 18446744073709551615]", "[1, 2, ...]"] {
            let (facts, notes) = read(&format!(
                r#"{{"Collective name": "all_to_allv", "dtype": "Int", "In msg nelems": 10,
                     "In split size": "{list}"}}"#
            ));
            let facts = facts.unwrap();
            assert_eq!(facts.in_splits, [0; 0], "{list}");
            assert_eq!(facts.splits_cut, list.contains("..."), "{list}");
            assert_eq!(notes.iter().count(), 1, "{list}");
        }
        let nothing = r#"{"Collective name": "all_to_allv", "dtype": "Int", "In split size": "[0, 0]"}"#;
        assert_eq!(read(nothing).0.unwrap().in_splits, [0, 0]);
    }

    #[test]
    fn types_that_the_pattern_lacks_keep_their_size() {
        for (recorded, dtype, elements, stands) in [
            ("Float8_e4m3fn", Dtype::F8e4m3, 10, false),
            ("Float8_e5m2", Dtype::F8e5m2, 10, false),
            ("Float8_e4m3fnuz", Dtype::F8e4m3, 10, true),
            ("Float8_e5m2fnuz", Dtype::F8e5m2, 10, true),
            ("Short", Dtype::F16, 10, true),
            ("Char", Dtype::I8, 10, false),
            ("Bool", Dtype::U8, 10, false),
            ("ComplexFloat", Dtype::F32, 20, false),
            ("ComplexDouble", Dtype::F64, 20, false),
        ] {
            let (facts, notes) = read(&format!(
                r#"{{"Collective name": "all_to_allv", "dtype": "{recorded}", "In msg nelems": 10,
                     "In split size": "[2, 3]"}}"#
            ));
            let facts = facts.unwrap();
            assert_eq!((facts.dtype, facts.in_elements), (Some(dtype), elements), "{recorded}");
            assert_eq!(facts.in_splits, [elements / 5 * 2, elements / 5 * 3], "{recorded}");
            assert_eq!(facts.stands_for.as_deref(), stands.then_some(recorded));
            assert!(notes.is_empty());
        }
    }

    #[test]
    fn the_rank_of_a_send_is_its_peers_and_that_of_a_collective_the_callers() {
        let (facts, _) = read(r#"{"Collective name": "send", "dtype": "Half", "Rank": 1}"#);
        let facts = facts.unwrap();
        assert_eq!((facts.op, facts.group_peer), (CommOp::Send { to: None }, Some(1)));
        let (facts, _) = read(r#"{"Collective name": "broadcast", "dtype": "Half", "Rank": 1}"#);
        assert_eq!(facts.unwrap().group_peer, None);
    }

    #[test]
    fn brackets_of_a_batch_are_no_communication() {
        for name in ["startcoalescing", "endcoalescing", "startCoalescing"] {
            let (facts, notes) = read(&format!(r#"{{"Collective name": "{name}"}}"#));
            assert_eq!(facts.unwrap().op, CommOp::Other);
            assert!(is_bracket(name) && notes.is_empty());
        }
        assert!(!is_bracket("allreduce_coalesced"));
    }

    #[test]
    fn unknown_types_are_noted() {
        let (facts, notes) = read(r#"{"Collective name": "allreduce", "dtype": "Bits3x7"}"#);
        assert_eq!(facts.unwrap().dtype, None);
        assert_eq!(notes.iter().next().unwrap().1.example, "allreduce of `Bits3x7`");
    }

    #[test]
    fn both_spellings_of_a_type_are_known() {
        for (c10, cpp, dtype) in [
            ("Float", "float", Dtype::F32),
            ("Double", "double", Dtype::F64),
            ("BFloat16", "c10::BFloat16", Dtype::Bf16),
            ("Half", "c10::Half", Dtype::F16),
            ("Float8_e4m3fn", "c10::Float8_e4m3fn", Dtype::F8e4m3),
            ("Float8_e5m2", "c10::Float8_e5m2", Dtype::F8e5m2),
            ("Long", "long int", Dtype::I64),
            ("Int", "int", Dtype::I32),
            ("Char", "signed char", Dtype::I8),
            ("Byte", "unsigned char", Dtype::U8),
            ("Bool", "bool", Dtype::U8),
        ] {
            assert_eq!((super::dtype(c10), super::dtype(cpp)), (Some(dtype), Some(dtype)), "{c10}");
        }
        assert_eq!(super::dtype("TensorList"), None);
        assert_eq!(super::dtype(""), None);
    }

    #[test]
    fn arguments_without_a_name_are_no_communication() {
        assert_eq!(read("{}").0, None);
        assert_eq!(read(r#"{"Collective name": ""}"#).0, None);
    }
}
