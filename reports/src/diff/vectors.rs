//! Our statistics against scipy's, numpy's and statsmodels', on values that `scripts/statistics-vectors` stored.

use serde::Deserialize;

use super::interval::median;
use super::rank_test::{holm, mann_whitney};
use super::tail::Tail;
use super::{Metric, Row, Subject, Verdict, means};
use crate::statistics::nearest_rank;

/// How near the values must be.
const NEAR: f64 = 1e-9;

#[derive(Deserialize)]
struct Vectors {
    mann_whitney: Vec<Two>,
    holm: Vec<Family>,
    quantiles: Vec<Quantiles>,
    geometric_means: Vec<Ratios>,
}

#[derive(Deserialize)]
struct Two {
    method: String,
    a: Vec<f64>,
    b: Vec<f64>,
    p: f64,
}

#[derive(Deserialize)]
struct Family {
    p: Vec<f64>,
    adjusted: Vec<f64>,
}

#[derive(Deserialize)]
struct Quantiles {
    values: Vec<u64>,
    median: f64,
    nearest_rank: std::collections::BTreeMap<String, f64>,
    p99: f64,
}

#[derive(Deserialize)]
struct Ratios {
    ratios: Vec<f64>,
    mean: f64,
}

fn vectors() -> Vectors {
    serde_json::from_str(include_str!("../../tests/vectors/statistics.json")).unwrap()
}

#[test]
fn mann_whitney_is_scipys() {
    let all = vectors().mann_whitney;
    for Two { method, a, b, p } in &all {
        let ours = mann_whitney(a, b).unwrap();
        assert!((ours - p).abs() < NEAR, "{method} {a:?} {b:?}: {ours}, scipy {p}");
        assert!((mann_whitney(b, a).unwrap() - p).abs() < NEAR, "not symmetric: {a:?} {b:?}");
    }
    for method in ["exact", "permutation", "asymptotic"] {
        assert!(all.iter().filter(|case| case.method == method).count() >= 12, "{method}");
    }
}

#[test]
fn holm_is_statsmodels() {
    for Family { p, adjusted } in vectors().holm {
        let near = |(ours, theirs): (&f64, &f64)| (ours - theirs).abs() < NEAR;
        assert!(holm(&p).iter().zip(&adjusted).all(near), "{p:?}: {:?}, statsmodels {adjusted:?}", holm(&p));
    }
}

#[test]
fn medians_and_quantiles_are_numpys() {
    for Quantiles { values, median: theirs, nearest_rank: ranks, p99 } in vectors().quantiles {
        let mut sorted: Vec<f64> = values.iter().map(|value| *value as f64).collect();
        assert_eq!(median(&mut sorted), Some(theirs));
        for (q, theirs) in &ranks {
            assert_eq!(nearest_rank(&sorted, q.parse().unwrap()), *theirs, "{q} of {}", values.len());
        }
        let tail = Tail::new(values.iter().map(|value| (*value, 0)).collect());
        assert_eq!(tail.map(|tail| tail.value()), (values.len() >= 100).then_some(p99));
    }
}

#[test]
fn geometric_means_are_scipys() {
    for Ratios { ratios, mean } in vectors().geometric_means {
        let row = |ratio: &f64| Row {
            subject: Subject::Block { block: "b".into(), axis: None },
            metric: Metric::Alone,
            kind: None,
            size_bytes: None,
            before: Some(1.0),
            after: Some(*ratio),
            ratio: Some(*ratio),
            interval: None,
            runs: (6, 6),
            p: None,
            p_holm: None,
            floor: None,
            verdict: Verdict::Unclear,
        };
        let rows: Vec<Row> = ratios.iter().map(row).collect();
        let [(Metric::Alone, ours, blocks)] = means(&rows)[..] else { panic!("one mean") };
        assert!((ours - mean).abs() < NEAR && blocks == ratios.len(), "{ours}, scipy {mean}");
    }
}
