//! Which kernels are a communication library's, by their names, and which operation such a name tells.
//!
//! A name is the last resort: where metadata or records speak, they are believed. It never tells an algorithm or a
//! protocol, for NCCL compiles one kernel per operation and type and runs any algorithm in it. Kernels of libraries
//! that leave no records (custom all-reduces, expert dispatch, NVSHMEM) are known by nothing else; users add patterns
//! for what is not listed here.

use maestro_pattern::CollectiveKind;

/// A pattern for names of kernels that communicate, with what they do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommKernel {
    /// Part of a name; with `*` or `?` in it, a whole name as in a shell.
    pub pattern: String,
    /// What such kernels do, if that is known.
    pub kind: Option<CollectiveKind>,
}

impl std::str::FromStr for CommKernel {
    type Err = String;

    /// `PATTERN` or `PATTERN=operation`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (pattern, kind) = match text.rsplit_once('=') {
            Some((pattern, name)) => match CollectiveKind::from_name(name) {
                Some(kind) => (pattern, Some(kind)),
                None => {
                    let known: Vec<&str> = CollectiveKind::ALL.iter().map(|kind| kind.name()).collect();
                    return Err(format!("`{name}` is no operation; there are {}", known.join(", ")));
                }
            },
            None => (text, None),
        };
        if pattern.trim().is_empty() {
            return Err("an empty pattern would make every kernel communication".to_owned());
        }
        Ok(Self { pattern: pattern.to_owned(), kind })
    }
}

impl CommKernel {
    /// Whether a kernel of this name is meant.
    pub fn matches(&self, name: &str) -> bool {
        if self.pattern.contains(['*', '?']) {
            crate::source::matches(&self.pattern, name)
        } else {
            name.contains(&self.pattern)
        }
    }
}

/// What a name begins with, a leading `void ` and case apart.
const PREFIXES: [&str; 3] = ["nccl", "rccl", "msccl"];

/// What is part of a name, in lower case.
const PARTS: [&str; 13] = [
    "cross_device_reduce_",
    "all_reduce_one_shot",
    "all_reduce_two_shot",
    "one_shot_all_reduce",
    "two_shot_all_reduce",
    "multimem_all_reduce",
    "multimem_one_shot",
    "multimem_all_gather",
    "multimem_reduce_scatter",
    "deep_ep::",
    "nvshmem",
    "oneccl_",
    "rcclgenerickernel",
];

/// Namespaces of expert dispatch and combine inside a name, in lower case.
const DISPATCHERS: [&str; 3] = ["ep::internode::", "ep::intranode::", "ep::internode_ll::"];

/// Words of a name and the operation that they tell. The first that occurs counts.
const WORDS: [(&str, CollectiveKind); 14] = [
    ("allreduce", CollectiveKind::AllReduce),
    ("all_reduce", CollectiveKind::AllReduce),
    ("cross_device_reduce", CollectiveKind::AllReduce),
    ("allgather", CollectiveKind::AllGather),
    ("all_gather", CollectiveKind::AllGather),
    ("reducescatter", CollectiveKind::ReduceScatter),
    ("reduce_scatter", CollectiveKind::ReduceScatter),
    ("alltoall", CollectiveKind::AllToAll),
    ("all_to_all", CollectiveKind::AllToAll),
    ("broadcast", CollectiveKind::Broadcast),
    ("barrier", CollectiveKind::Barrier),
    ("::dispatch<", CollectiveKind::AllToAll),
    ("::combine<", CollectiveKind::AllToAll),
    ("_reduce_", CollectiveKind::Reduce),
];

/// Whether a kernel's name is one of a communication library's.
pub(crate) fn is_communication(name: &str) -> bool {
    if is_nccl(name) {
        return true;
    }
    let lower = name.to_ascii_lowercase();
    // It only counts what goes where.
    if lower.contains("get_dispatch_layout") {
        return false;
    }
    PARTS.iter().chain(&DISPATCHERS).any(|part| lower.contains(part))
}

/// Whether a kernel's name is one of NCCL's or of its kin, which the host records.
pub(crate) fn is_nccl(name: &str) -> bool {
    let name = name.strip_prefix("void ").unwrap_or(name);
    let starts = |prefix: &str| name.get(..prefix.len()).is_some_and(|head| head.eq_ignore_ascii_case(prefix));
    PREFIXES.iter().any(|prefix| starts(prefix))
}

/// The operation that a kernel's name tells, if any.
pub(crate) fn operation(name: &str) -> Option<CollectiveKind> {
    let lower = name.to_ascii_lowercase();
    WORDS.iter().find(|(word, _)| lower.contains(word)).map(|(_, kind)| *kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_communication_libraries_are_known_in_any_case() {
        for (name, kind) in [
            ("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", Some(CollectiveKind::AllGather)),
            ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", Some(CollectiveKind::AllReduce)),
            ("ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)", None),
            ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", None),
            ("ncclSymkDevKernel_ReduceScatter_LDMC_sum_bf16(ncclSymkDevWorkArgs)", Some(CollectiveKind::ReduceScatter)),
            ("ncclSymDevKernel_AllReduce_RSxLDMC_AGxSTMC(ncclSymDevArgs)", Some(CollectiveKind::AllReduce)),
            ("void rcclGenericKernel<1, false>(ncclDevComm*)", None),
            ("mscclKernel_Sum_half_Simple", None),
            (
                "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*)",
                Some(CollectiveKind::AllReduce),
            ),
            ("void one_shot_all_reduce_kernel<c10::BFloat16, 16, 8>(c10::BFloat16*)", Some(CollectiveKind::AllReduce)),
            ("void multimem_all_reduce_kernel<float, 16>(float*, unsigned long)", Some(CollectiveKind::AllReduce)),
            ("void deep_ep::internode::dispatch<false, 4, false, 8192>(int4*, float*)", Some(CollectiveKind::AllToAll)),
            ("void deep_ep::intranode::combine<__nv_bfloat16, 8, 768>(void*)", Some(CollectiveKind::AllToAll)),
            ("void deep_ep::internode::notify_dispatch<false, 4>(int const*)", None),
            ("nvshmemi_barrier_kernel(int)", Some(CollectiveKind::Barrier)),
            ("oneccl_allreduce_medium", Some(CollectiveKind::AllReduce)),
        ] {
            assert!(is_communication(name), "{name}");
            assert_eq!(operation(name), kind, "{name}");
        }
        for name in [
            "nvjet_sm90_tst_256x128",
            "void at::native::reduce_kernel<128, 4>",
            "nc",
            "void deep_ep::layout::get_dispatch_layout<256, 32, 8>(long const*)",
            "triton_poi_fused_step::internal_0",
        ] {
            assert!(!is_communication(name), "{name}");
        }
    }

    #[test]
    fn users_add_patterns_with_or_without_an_operation() {
        let ours: CommKernel = "my_ring_*=all_gather".parse().unwrap();
        assert_eq!(ours.kind, Some(CollectiveKind::AllGather));
        assert!(ours.matches("my_ring_push<4>") && !ours.matches("not_my_ring_push"));
        let part: CommKernel = "halo_exchange".parse().unwrap();
        assert!(part.matches("void ns::halo_exchange<3>(float*)") && part.kind.is_none());
        assert!("x=allreduce".parse::<CommKernel>().unwrap_err().contains("all_reduce"));
        assert!("=all_reduce".parse::<CommKernel>().is_err());
    }
}
