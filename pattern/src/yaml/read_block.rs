//! Reads blocks.

use super::node::{Fields, Key, Node, Value};
use crate::{
    Block, Collective, CollectiveKind, CopyDirection, CudaKernel, Direction, Error, GemmLayout, Kernel, ReduceOp,
    Result, Transfer, Work,
};

/// What a block can be: the nine collectives and the other kinds of work.
const WORKS: [&str; 15] = [
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "broadcast",
    "reduce",
    "gather",
    "scatter",
    "all_to_all",
    "barrier",
    "p2p",
    "group",
    "compute",
    "copy",
    "set",
    "kernel",
];

pub(super) fn block(key: &Key, node: &Node) -> Result<Block> {
    let what = format!("block `{}`", key.name);
    let mut known = WORKS.to_vec();
    known.extend(["wrap", "captured", "idle", "skew"]);
    let fields = node.fields(&what, &known)?;
    let (kind, _, body) = fields.only(&WORKS, "a block does exactly one thing")?;
    let work = work(kind, body, &fields, &what)?;
    let captured_ns = fields.get("captured").map(|n| n.duration(&format!("captured of {what}"))).transpose()?;
    let idle_ns = fields.get("idle").map(|n| n.duration(&format!("idle of {what}"))).transpose()?.unwrap_or(0);
    if idle_ns > captured_ns.unwrap_or(0) {
        return Err(Error::at(key.place, format!("{what} is idle for longer than it was captured"))
            .help("idle is the part of captured in which nothing ran"));
    }
    let skew = fields.get("skew").map(|n| n.factors(&format!("skew of {what}"))).transpose()?.unwrap_or_default();
    Ok(Block { name: key.name.clone(), work, captured_ns, idle_ns, skew, place: key.place })
}

fn work(kind: &'static str, body: &Node, fields: &Fields<'_>, what: &str) -> Result<Work> {
    let wrap = fields.get("wrap");
    if let (Some(wrap), true) = (wrap, kind != "p2p") {
        return Err(Error::at(wrap.place, format!("{what}: wrap belongs to p2p")).help("remove it"));
    }
    if let Some(kind) = CollectiveKind::from_name(kind) {
        return Ok(Work::Collective(collective(kind, body, what)?));
    }
    Ok(match kind {
        "p2p" => Work::P2p {
            transfers: body.list(what)?.iter().map(|n| transfer(n, what)).collect::<Result<_>>()?,
            wrap: wrap.map(|n| n.bool("wrap")).transpose()?.unwrap_or(false),
        },
        "group" => Work::Group(
            body.list(what)?
                .iter()
                .map(|node| {
                    let names = CollectiveKind::ALL.map(CollectiveKind::name);
                    let inner = format!("a collective in {what}");
                    let fields = node.fields(&inner, &names)?;
                    let (name, key, body) = fields.only(&names, "each entry of a group is one collective")?;
                    let kind = CollectiveKind::from_name(name)
                        .ok_or_else(|| Error::at(key.place, format!("`{name}` is no collective")))?;
                    collective(kind, body, &inner)
                })
                .collect::<Result<_>>()?,
        ),
        "compute" => Work::Compute(body.list(what)?.iter().map(|node| kernel(node, what)).collect::<Result<Vec<_>>>()?),
        "kernel" => Work::Cuda(cuda(body, what)?),
        _ => Work::Compute(vec![plain_kernel(kind, body, 1, what)?]),
    })
}

fn collective(kind: CollectiveKind, body: &Node, what: &str) -> Result<Collective> {
    let mut known = Vec::new();
    if kind != CollectiveKind::Barrier {
        known.extend(["size", "dtype"]);
    }
    if kind.reduces() {
        known.push("op");
    }
    if kind.rooted() {
        known.push("root");
    }
    if kind == CollectiveKind::AllToAll {
        known.push("splits");
    }
    if kind.may_be_in_place() {
        known.push("in_place");
    }
    let what = format!("{} of {what}", kind.name());
    let fields = body.fields(&what, &known)?;
    if kind == CollectiveKind::Barrier {
        return Ok(Collective::new(kind, 0, crate::Dtype::U8));
    }
    let size = fields.need("size")?;
    let size = match &size.value {
        Value::Text(text) if text == "unknown" => None,
        _ => Some(size.bytes(&format!("size of {what}"))?),
    };
    let op = match fields.get("op") {
        None => ReduceOp::Sum,
        Some(node) => node.one_of(&format!("op of {what}"), ReduceOp::from_name, ReduceOp::ALL.map(ReduceOp::name))?,
    };
    let splits = match fields.get("splits") {
        None => Vec::new(),
        Some(node) => node
            .list(&format!("splits of {what}"))?
            .iter()
            .map(|row| row.list("a row of splits")?.iter().map(|n| n.bytes("a split")).collect())
            .collect::<Result<_>>()?,
    };
    let root = fields.get("root").map(|n| n.integer(&format!("root of {what}"))).transpose()?.unwrap_or(0);
    let in_place = fields.get("in_place").map(|n| n.bool(&format!("in_place of {what}"))).transpose()?.unwrap_or(false);
    let dtype = fields.need("dtype")?.dtype(&format!("dtype of {what}"))?;
    Ok(Collective { kind, size, dtype, op, root, splits, in_place })
}

fn transfer(node: &Node, block: &str) -> Result<Transfer> {
    let what = format!("a transfer of {block}");
    let fields = node.fields(&what, &["send", "recv"])?;
    let (kind, _, body) = fields.only(&["send", "recv"], "a transfer sends or receives")?;
    let (direction, peer) = if kind == "send" { (Direction::Send, "to") } else { (Direction::Recv, "from") };
    let inner = format!("{kind} of {block}");
    let fields = body.fields(&inner, &[peer, "size", "dtype"])?;
    Ok(Transfer {
        direction,
        offset: fields.need(peer)?.integer(&format!("`{peer}` of {inner}"))?,
        size: fields.need("size")?.bytes(&format!("size of {inner}"))?,
        dtype: fields.need("dtype")?.dtype(&format!("dtype of {inner}"))?,
    })
}

fn kernel(node: &Node, block: &str) -> Result<Kernel> {
    let what = format!("a kernel of {block}");
    let fields = node.fields(&what, &["gemm", "memory", "hold", "copy", "set", "times", "sms", "lasts"])?;
    let times = fields.get("times").map(|n| n.count("times")).transpose()?.unwrap_or(1);
    let (kind, _, body) = fields.only(&["gemm", "memory", "hold", "copy", "set"], "a kernel does exactly one thing")?;
    let only_for = |key: &str, of: &str| match fields.get(key) {
        Some(node) if kind != of => {
            Err(Error::at(node.place, format!("{what}: {key} belongs to {of}")).help("remove it"))
        }
        found => Ok(found),
    };
    let (sms, lasts) = (only_for("sms", "hold")?, only_for("lasts", "memory")?);
    if kind == "hold" {
        let sms = sms.map(|n| n.integer("sms")).transpose()?;
        return Ok(Kernel::Hold { duration_ns: body.duration(&format!("hold of {block}"))?, sms, times });
    }
    if kind == "memory" {
        let lasts_ns = lasts.map(|n| n.duration(&format!("lasts of {what}"))).transpose()?;
        return Ok(Kernel::Memory { bytes: body.bytes(&format!("memory of {block}"))?, lasts_ns, times });
    }
    plain_kernel(kind, body, times, block)
}

/// The kernels that need nothing beside their own key.
fn plain_kernel(kind: &str, body: &Node, times: u64, block: &str) -> Result<Kernel> {
    let what = format!("{kind} of {block}");
    Ok(match kind {
        "gemm" => {
            let fields = body.fields(&what, &["m", "n", "k", "batch", "dtype", "layout"])?;
            let layout = |node: &Node| {
                let names = GemmLayout::ALL.map(GemmLayout::name);
                node.one_of(&format!("layout of {what}"), GemmLayout::from_name, names)
            };
            let side = |name: &str| fields.need(name)?.count(&format!("{name} of {what}"));
            Kernel::Gemm {
                m: side("m")?,
                n: side("n")?,
                k: side("k")?,
                batch: fields.get("batch").map(|n| n.count("batch")).transpose()?.unwrap_or(1),
                dtype: fields.need("dtype")?.dtype(&format!("dtype of {what}"))?,
                layout: fields.get("layout").map(layout).transpose()?.unwrap_or_default(),
                times,
            }
        }
        "copy" => {
            let names = CopyDirection::ALL.map(CopyDirection::name);
            let fields = body.fields(&what, &names)?;
            let (name, _, size) = fields.only(&names, "a copy has one direction")?;
            let direction = CopyDirection::ALL.into_iter().find(|d| d.name() == name).unwrap_or(CopyDirection::D2d);
            Kernel::Copy { direction, size: size.bytes(&what)?, times }
        }
        _ => Kernel::Set { size: body.bytes(&what)?, times },
    })
}

fn cuda(body: &Node, block: &str) -> Result<CudaKernel> {
    let what = format!("kernel of {block}");
    let fields = body.fields(&what, &["source", "entry", "grid", "threads"])?;
    let triple = |name: &str| -> Result<[u32; 3]> {
        let node = fields.need(name)?;
        let list = node.list(&format!("{name} of {what}"))?;
        let mut all = [1; 3];
        if list.is_empty() || list.len() > 3 {
            return Err(node.wrong(&format!("{name} of {what}"), "a list of one to three numbers"));
        }
        for (slot, node) in all.iter_mut().zip(list) {
            *slot = node.integer(&format!("{name} of {what}"))?;
        }
        Ok(all)
    };
    Ok(CudaKernel {
        source: fields.need("source")?.text(&format!("source of {what}"))?,
        entry: fields.need("entry")?.text(&format!("entry of {what}"))?,
        grid: triple("grid")?,
        threads: triple("threads")?,
    })
}
