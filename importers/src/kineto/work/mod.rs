//! What operators do, from the shapes that their rows record; and, in `link`, which kernels they launched.
//!
//! A large trace has a row for every operator, a million of them, and few launch anything. So a row is first asked for
//! its name only: what reshapes, or calls other operators, has no work of its own. Of the others the texts of name,
//! shapes, strides and values are looked up as a whole, because a training step repeats itself: each combination is
//! worked out once, and a row costs no more than a number that stands for its work. Which rows launched kernels is known
//! at the end of the file only, rows being in no order.

mod attention;
mod convolution;
mod link;
mod lists;
mod products;
mod shapes;
mod traffic;

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use self::shapes::{Row, Shapes};
use super::event::{Args, Raw, integer};
use crate::Notes;
use crate::capture::{Attention, Product};

/// What an operator does, as far as its row tells.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Work {
    Products(Vec<Product>),
    Attention(Attention),
    Traffic {
        bytes: u64,
        guessed: bool,
    },
    /// Memory traffic of lists of tensors, whose element type only the kernels' names tell.
    Lists {
        /// Elements of one list; `None`: too many tensors to be recorded.
        elements: Option<u64>,
        /// How many times so many are read.
        reads: u8,
        /// How many times so many are written.
        writes: u8,
    },
}

/// The operators of a file that may have launched kernels.
#[derive(Default)]
pub(super) struct Operators {
    seen: Vec<Seen>,
    /// Each kind of work once.
    works: Vec<Work>,
    /// Places in `works`.
    places: HashMap<Work, u32>,
    /// What has been worked out, by a hash of the texts: two that differ share 64 bits once in 10^7 traces.
    texts: HashMap<u64, Option<u32>>,
    hasher: RandomState,
    shapes: Shapes,
}

/// A row of an operator of some work.
struct Seen {
    /// 0: it has none.
    external_id: u64,
    thread: i64,
    start_ns: i64,
    /// Longer than four seconds stands for four seconds.
    duration_ns: u32,
    work: u32,
}

impl Operators {
    /// The threads of all operators, to be renamed.
    pub(super) fn threads(&mut self) -> impl Iterator<Item = &mut i64> {
        self.seen.iter_mut().map(|seen| &mut seen.thread)
    }

    /// Adds what comes behind these in the file.
    pub(super) fn append(&mut self, later: Self) {
        let places: Vec<u32> = later.works.into_iter().map(|work| self.place(work)).collect();
        self.seen.extend(later.seen.into_iter().map(|seen| Seen { work: places[seen.work as usize], ..seen }));
    }

    /// Takes the row of an operator; times relative to the header's base.
    pub(super) fn take(&mut self, name: &str, args: &Args<'_>, thread: i64, time_ns: (i64, i64), notes: &mut Notes) {
        let [dims, strides, types, values] =
            [args.input_dims, args.input_strides, args.input_type, args.concrete_inputs].map(text);
        let hash = self.hasher.hash_one((name, dims, strides, types, values));
        let work = match self.texts.get(&hash) {
            Some(work) => *work,
            None => {
                let work = self.work(name, [dims, strides], types, values).map(|work| self.place(work));
                self.texts.insert(hash, work);
                work
            }
        };
        let Some(work) = work else {
            let (_, base) = split(name);
            if products::multiplies(base) || convolution::convolves(base) || attention::attends(base) {
                notes.add("matrix products without usable shapes", || {
                    format!("{name} of {dims} (recorded with record_shapes?)")
                });
            }
            return;
        };
        let (start_ns, end_ns) = time_ns;
        self.seen.push(Seen {
            external_id: integer(args.external_id).unwrap_or(0),
            thread,
            start_ns,
            duration_ns: u32::try_from(end_ns - start_ns).unwrap_or(u32::MAX),
            work,
        });
    }

    fn place(&mut self, work: Work) -> u32 {
        let works = &mut self.works;
        *self.places.entry(work).or_insert_with_key(|work| {
            works.push(work.clone());
            works.len() as u32 - 1
        })
    }

    fn work(&mut self, name: &str, dims_strides: [&str; 2], types: &str, values: &str) -> Option<Work> {
        let (space, base) = split(name);
        if !self.shapes.read(dims_strides, types) {
            return None;
        }
        let row = Row { base, shapes: &self.shapes, types, values };
        let native = matches!(space, "aten" | "fsdp");
        if attention::attends(base) {
            attention::attention(&row).map(Work::Attention)
        } else if native && products::multiplies(base) {
            products::product(&row).map(|product| Work::Products(vec![product]))
        } else if native && convolution::convolves(base) {
            convolution::products(&row).map(Work::Products)
        } else {
            let known = if native { traffic::traffic(&row) } else { None };
            known.or_else(|| traffic::guess(&row))
        }
    }
}

/// `aten::mm` -> (`aten`, `mm`); a name that belongs to nothing is all base.
fn split(name: &str) -> (&str, &str) {
    name.split_once("::").unwrap_or(("", name))
}

/// Whether operators of this name can have work of their own. That of views is none; others only call operators that
/// have rows themselves, and what they are given is no measure of what they do.
pub(super) fn works(name: &str) -> bool {
    let (space, base) = split(name);
    match space {
        "aten" => !calls_others(base),
        "autograd"
        | "c10d"
        | "c10d_functional"
        | "_c10d_functional"
        | "_c10d_functional_autograd"
        | "nccl"
        | "prim" => false,
        // Nodes of the backward pass end in a digit if generated, and call operators; written by hand they may launch.
        "" => {
            let prefixes =
                ["ProfilerStep", "Optimizer.", "nn.Module", "Torch-Compiled", "CompiledF", "enumerate(", "##"];
            let listed = prefixes.iter().any(|prefix| base.starts_with(prefix));
            let generated = base.ends_with(|last: char| last.is_ascii_digit()) && base.contains("Backward");
            !(listed || generated || base == "record_param_comms" || base.contains("DataParallel"))
        }
        _ => true,
    }
}

fn calls_others(base: &str) -> bool {
    matches!(
        base,
        // Views, and memory that nobody fills.
        "view" | "_unsafe_view" | "view_as" | "reshape" | "_reshape_alias" | "t" | "transpose" | "permute" | "movedim"
            | "expand" | "expand_as" | "as_strided" | "as_strided_" | "slice" | "select" | "narrow" | "unsqueeze"
            | "unsqueeze_" | "squeeze" | "squeeze_" | "detach" | "detach_" | "alias" | "split" | "split_with_sizes"
            | "chunk" | "unbind" | "unflatten" | "flatten" | "diagonal" | "unfold" | "numpy_T" | "lift_fresh" | "set_"
            | "resize_" | "empty" | "empty_like" | "empty_strided" | "new_empty" | "new_empty_strided" | "result_type"
            | "is_nonzero" | "item" | "_local_scalar_dense" | "record_stream" | "broadcast_tensors" | "resolve_conj"
            | "resolve_neg" | "_to_cpu" | "size" | "stride" | "_nested_tensor_size"
        // Names under which others are called.
            | "to" | "_to_copy" | "type_as" | "contiguous" | "clone" | "matmul" | "einsum" | "tensordot" | "conv1d"
            | "conv2d" | "conv3d" | "zeros" | "zeros_like" | "ones" | "ones_like" | "full" | "full_like" | "new_zeros"
            | "new_ones" | "new_full" | "zero_" | "rand" | "rand_like" | "randn" | "randn_like" | "randint" | "dropout"
            | "layer_norm" | "rms_norm" | "batch_norm" | "_batch_norm_impl_index" | "group_norm" | "softmax"
            | "log_softmax" | "cross_entropy_loss" | "nll_loss" | "nll_loss_nd" | "scaled_dot_product_attention"
            | "embedding_backward" | "adaptive_avg_pool2d" | "max_pool2d" | "pad" | "stack" | "concat" | "repeat"
            | "index_put" | "index_put_" | "square"
    )
}

fn text(raw: Raw<'_>) -> &str {
    raw.map_or("", |raw| raw.get())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An operator's row, as texts.
    #[derive(Default)]
    pub(super) struct Given<'a> {
        pub name: &'a str,
        pub dims: &'a str,
        pub strides: &'a str,
        pub types: &'a str,
        pub values: &'a str,
    }

    pub(super) fn work(given: Given<'_>) -> Option<Work> {
        Operators::default().work(given.name, [given.dims, given.strides], given.types, given.values)
    }

    #[test]
    fn what_only_calls_others_is_left_out() {
        for name in [
            "aten::view",
            "aten::matmul",
            "autograd::engine::evaluate_function: AddmmBackward0",
            "AddmmBackward0",
            "c10d::allreduce_",
            "record_param_comms",
            "ProfilerStep#3",
            "Torch-Compiled Region: 0/0",
            "DistributedDataParallel.forward",
        ] {
            assert!(!works(name), "{name}");
        }
        for name in
            ["aten::mm", "fsdp::chunk_cat", "triton_poi_fused_add_0", "FlashAttnFunc", "mine::op", "MineBackward"]
        {
            assert!(works(name), "{name}");
        }
    }

    #[test]
    fn equal_rows_are_worked_out_once() {
        let mut operators = Operators::default();
        let mut notes = Notes::default();
        let mut take = |json: &str| {
            let args = Args::of(json);
            operators.take("aten::mm", &args, 1, (0, 10), &mut notes);
        };
        let row = |id: u64, k: u64| {
            format!(r#"{{"External id": {id}, "Input Dims": [[2, {k}], [{k}, 5]], "Input type": ["float", "float"]}}"#)
        };
        take(&row(1, 3));
        take(&row(2, 3));
        take(&row(3, 4));
        take(r#"{"External id": 4}"#);
        let ids: Vec<_> = operators.seen.iter().map(|seen| (seen.external_id, seen.work)).collect();
        assert_eq!(ids, [(1, 0), (2, 0), (3, 1)]);
        assert_eq!((operators.works.len(), operators.texts.len()), (2, 3));
        assert_eq!(notes.iter().map(|(_, note)| note.count).sum::<u64>(), 1);
    }
}
