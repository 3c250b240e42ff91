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
    let op = op(&recorded_name, args);
    if op == CommOp::Other {
        notes.add("communications of a name that is not known", || recorded_name.clone().into_owned());
    }
    let dtype = dtype(bare(args.dtype));
    if dtype.is_none() && op != CommOp::Wait {
        notes.add("communications of an element type that is not known", || {
            format!("{recorded_name} of `{}`", bare(args.dtype))
        });
    }
    let in_elements = integer(args.in_elements).unwrap_or(0);
    let out_elements = integer(args.out_elements).unwrap_or(0);
    let ranks = match List::read(args.ranks) {
        List::Whole(ranks) if ranks.is_empty() => None,
        List::Whole(ranks) => ranks.into_iter().map(|rank| u32::try_from(rank).ok()).collect(),
        List::Cut => {
            notes.add("communications whose list of ranks is cut", || bare(args.ranks).to_owned());
            None
        }
    };
    let mut shared = |name: Raw<'_>| text(name).filter(|name| !name.is_empty()).map(|name| names.share(&name));
    let (group_name, group_desc) = (shared(args.group_name), shared(args.group_desc));
    Some(CommFacts {
        op,
        recorded_name: names.share(&recorded_name),
        dtype,
        in_elements,
        out_elements,
        in_splits: splits(List::read(args.in_splits), in_elements, notes),
        out_splits: splits(List::read(args.out_splits), out_elements, notes),
        group_size: integer(args.group_size),
        ranks,
        group_name,
        group_desc,
        seq: integer(args.seq),
    })
}

/// Splits in elements. They are recorded in rows of the tensor: all rows together are all `elements`.
fn splits(list: List, elements: u64, notes: &mut Notes) -> Vec<u64> {
    let List::Whole(rows) = list else {
        notes.add("communications whose list of splits is cut", || format!("one of {elements} elements"));
        return Vec::new();
    };
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

fn op(name: &str, args: &Args<'_>) -> CommOp {
    match base(name).as_str() {
        "allreduce" => CommOp::Collective(CollectiveKind::AllReduce),
        "allgather" => CommOp::Collective(CollectiveKind::AllGather),
        "reducescatter" => CommOp::Collective(CollectiveKind::ReduceScatter),
        "broadcast" => CommOp::Collective(CollectiveKind::Broadcast),
        "reduce" => CommOp::Collective(CollectiveKind::Reduce),
        "gather" => CommOp::Collective(CollectiveKind::Gather),
        "scatter" => CommOp::Collective(CollectiveKind::Scatter),
        "alltoall" => CommOp::Collective(CollectiveKind::AllToAll),
        "barrier" => CommOp::Collective(CollectiveKind::Barrier),
        "send" | "isend" => CommOp::Send { to: integer(args.destination) },
        "recv" | "irecv" => CommOp::Recv { from: integer(args.source) },
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
    match name.strip_prefix("c10::").unwrap_or(name) {
        "Double" | "double" => Some(Dtype::F64),
        "Float" | "float" => Some(Dtype::F32),
        "Half" => Some(Dtype::F16),
        "BFloat16" => Some(Dtype::Bf16),
        "Float8_e4m3fn" => Some(Dtype::F8e4m3),
        "Float8_e5m2" => Some(Dtype::F8e5m2),
        "Long" | "long" | "long int" => Some(Dtype::I64),
        "Int" | "int" => Some(Dtype::I32),
        "Char" | "signed char" => Some(Dtype::I8),
        // NCCL sees booleans as bytes.
        "Byte" | "unsigned char" | "Bool" | "bool" => Some(Dtype::U8),
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
                assert_eq!(op(name, &Args::default()), CommOp::Collective(kind), "{name}");
            }
        }
        for name in ["startcoalescing", "coalesced", "v", "", "_", "tensor"] {
            assert_eq!(op(name, &Args::default()), CommOp::Other, "{name}");
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
            assert_eq!(facts.unwrap().in_splits, [0; 0], "{list}");
            assert_eq!(notes.iter().count(), 1, "{list}");
        }
        let nothing = r#"{"Collective name": "all_to_allv", "dtype": "Int", "In split size": "[0, 0]"}"#;
        assert_eq!(read(nothing).0.unwrap().in_splits, [0, 0]);
    }

    #[test]
    fn cut_ranks_are_not_recorded() {
        let (facts, notes) =
            read(r#"{"Collective name": "allreduce", "dtype": "Float", "Process Group Ranks": "[0, 1, 2, ...]"}"#);
        assert_eq!(facts.unwrap().ranks, None);
        assert_eq!(notes.iter().count(), 1);
    }

    #[test]
    fn unknown_types_are_noted() {
        let (facts, notes) = read(r#"{"Collective name": "allreduce", "dtype": "ComplexFloat"}"#);
        assert_eq!(facts.unwrap().dtype, None);
        assert_eq!(notes.iter().next().unwrap().1.example, "allreduce of `ComplexFloat`");
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
