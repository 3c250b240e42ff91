//! What operators make a device do: matrix products, attention, memory traffic. It knows no file format.
//!
//! These are facts that follow from shapes: what an operator's definition says of inputs of such sizes, and nothing of
//! how its kernels go about it. A product that a library splits into three kernels is one product here. Whether the
//! time that the kernels took is possible for the work is asked later, in [`crate::synthesis`].

use maestro_pattern::{Dtype, GemmLayout};

/// What one operator does.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum OperatorWork {
    /// Matrix products, one after another; a convolution is the products of its implicit form.
    Products(Vec<Product>),
    /// Fused attention.
    Attention(Attention),
    /// Reads and writes of memory and little else.
    Traffic {
        /// Bytes read and written.
        bytes: u64,
        /// Whether that is a guess: no rule is known for the operator, and its inputs are taken as read once and as
        /// much written as the largest has; or its tensors were too many to record, and thread blocks were counted.
        guessed: bool,
        /// How long that takes in nanoseconds, where the recording states it; elsewhere the kernels' times tell.
        lasts_ns: Option<u64>,
    },
    /// Nothing that is understood, for a time that the recording states: it comes from a pattern that holds it so.
    Held {
        /// How long, in nanoseconds, each time.
        duration_ns: u64,
        /// Multiprocessors that it keeps busy, if that is known.
        sms: Option<u32>,
        /// How often.
        times: u64,
    },
}

impl OperatorWork {
    /// Its matrix products; none of traffic.
    pub fn products(&self) -> Vec<Product> {
        match self {
            Self::Products(products) => products.clone(),
            Self::Attention(attention) => attention.products(),
            Self::Traffic { .. } | Self::Held { .. } => Vec::new(),
        }
    }
}

/// A matrix product's shape: `batch` times m x k by k x n.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Product {
    /// Rows of the result.
    pub m: u64,
    /// Columns of the result.
    pub n: u64,
    /// Inner dimension.
    pub k: u64,
    /// Independent products.
    pub batch: u64,
    /// Element type.
    pub dtype: Dtype,
    /// How the operands lie in memory.
    pub layout: GemmLayout,
}

impl Product {
    /// Floating-point operations: 2 m n k batch.
    pub fn flops(&self) -> f64 {
        [self.m, self.n, self.k, self.batch].iter().fold(2.0, |flops, side| flops * *side as f64)
    }
}

/// Fused attention of one kind: softmax(Q K^T) V without its matrices ever in memory, or the gradients of that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Attention {
    /// Sequences times heads of the queries.
    pub batch: u64,
    /// Length of a sequence of queries.
    pub queries: u64,
    /// Length of a sequence of keys and values.
    pub keys: u64,
    /// Size of a head of queries and keys.
    pub head: u64,
    /// Size of a head of values.
    pub value: u64,
    /// Whether a query sees no key behind its own place.
    pub causal: bool,
    /// Whether it is the backward pass.
    pub backward: bool,
    /// Element type.
    pub dtype: Dtype,
}

impl Attention {
    /// Its matrix products: two forward; five backward, where the scores are computed once more.
    ///
    /// A causal mask leaves out half, as FlashAttention counts it: the queries stand at the last places of the keys, so
    /// that of as many of both half the pairs remain, and a single query sees all. Left out are keys, on average.
    pub fn products(&self) -> Vec<Product> {
        let Self { batch, queries, keys, head, value, causal, backward, dtype } = *self;
        let keys = match causal {
            false => keys,
            true if queries <= keys => keys - queries / 2,
            true => (u128::from(keys) * u128::from(keys) / (2 * u128::from(queries))).max(1) as u64,
        };
        let product = |m, n, k, layout| Product { m, n, k, batch, dtype, layout };
        let scores = product(queries, keys, head, GemmLayout::Nt);
        if backward {
            // S = Q K^T again, dV = P^T dO, dP = dO V^T, dQ = dS K, dK = dS^T Q.
            vec![
                scores,
                product(keys, value, queries, GemmLayout::Tn),
                product(queries, keys, value, GemmLayout::Nt),
                product(queries, head, keys, GemmLayout::Nn),
                product(keys, head, queries, GemmLayout::Tn),
            ]
        } else {
            vec![scores, product(queries, value, keys, GemmLayout::Nn)]
        }
    }
}

/// That an operator of known work launched an activity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launched {
    /// The activity, as an index into a timeline's.
    pub activity: u32,
    /// The operator's number: equal where one call of an operator launched several activities.
    pub operator: u32,
    /// The operator's work, as an index into a timeline's `works`.
    pub work: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Attention = Attention {
        batch: 256,
        queries: 2048,
        keys: 2048,
        head: 128,
        value: 64,
        causal: false,
        backward: false,
        dtype: Dtype::Bf16,
    };

    fn flops(attention: Attention) -> f64 {
        attention.products().iter().map(Product::flops).sum()
    }

    #[test]
    fn attention_is_two_products_forward_and_five_backward() {
        // 2 B Sq Sk (d + dv) forward; 2 B Sq Sk (3 d + 2 dv) backward.
        let pairs = 2.0 * 256.0 * 2048.0 * 2048.0;
        assert_eq!(flops(PLAIN), pairs * (128.0 + 64.0));
        let backward = Attention { backward: true, ..PLAIN };
        assert_eq!(backward.products().len(), 5);
        assert_eq!(flops(backward), pairs * (3.0 * 128.0 + 2.0 * 64.0));
    }

    #[test]
    fn attention_multiplies_what_lies_there_as_it_lies() {
        let products = |backward| {
            let products = Attention { backward, ..PLAIN }.products();
            products.iter().map(|p| (p.m, p.n, p.k, p.layout.name())).collect::<Vec<_>>()
        };
        assert_eq!(products(false), [(2048, 2048, 128, "nt"), (2048, 64, 2048, "nn")]);
        let backward = [
            (2048, 2048, 128, "nt"),
            (2048, 64, 2048, "tn"),
            (2048, 2048, 64, "nt"),
            (2048, 128, 2048, "nn"),
            (2048, 128, 2048, "tn"),
        ];
        assert_eq!(products(true), backward);
    }

    #[test]
    fn a_causal_mask_halves_and_spares_a_single_query() {
        for backward in [false, true] {
            let (full, causal) = (Attention { backward, ..PLAIN }, Attention { backward, causal: true, ..PLAIN });
            assert_eq!(flops(causal), flops(full) / 2.0);
        }
        let decode = Attention { queries: 1, ..PLAIN };
        assert_eq!(flops(Attention { causal: true, ..decode }), flops(decode));
        // 512 queries at the end of 2048 keys: 1792 keys on average, of which 512 x 512 / 2 pairs are behind.
        let chunk = Attention { queries: 512, causal: true, ..PLAIN };
        assert_eq!(chunk.products()[0].n, 1792);
        // Keys fewer than queries: the 512 x 512 / 2 pairs of the last 512 queries, spread over 2048.
        let long = Attention { keys: 512, causal: true, ..PLAIN };
        assert_eq!(long.products()[0].n, 64);
    }
}
