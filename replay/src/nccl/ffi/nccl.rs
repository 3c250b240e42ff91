//! NCCL: communicators and the operations on them.

#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

use cudarc::driver::sys::CUstream;
use cudarc::nccl::sys::{ncclComm, ncclConfig_t, ncclDataType_t, ncclRedOp_t, ncclUniqueId};
use maestro_pattern::{CommSettings, Dtype, ReduceOp};

use super::cuda::{Slice, Stream};
use super::{Failure, Native, table};

type Raw = *mut ncclComm;

table! {
    /// NCCL's functions.
    Nccl {
        version = "ncclGetVersion" (*mut c_int) -> c_int;
        unique_id = "ncclGetUniqueId" (*mut ncclUniqueId) -> c_int;
        init = "ncclCommInitRankConfig" (*mut Raw, c_int, ncclUniqueId, c_int, *mut ncclConfig_t) -> c_int;
        destroy = "ncclCommDestroy" (Raw) -> c_int;
        abort = "ncclCommAbort" (Raw) -> c_int;
        async_error = "ncclCommGetAsyncError" (Raw, *mut c_int) -> c_int;
        error_string = "ncclGetErrorString" (c_int) -> *const c_char;
        group_start = "ncclGroupStart" () -> c_int;
        group_end = "ncclGroupEnd" () -> c_int;
        all_reduce = "ncclAllReduce" (
            *const c_void, *mut c_void, usize, ncclDataType_t, ncclRedOp_t, Raw, CUstream,
        ) -> c_int;
        reduce = "ncclReduce" (
            *const c_void, *mut c_void, usize, ncclDataType_t, ncclRedOp_t, c_int, Raw, CUstream,
        ) -> c_int;
        broadcast = "ncclBroadcast" (
            *const c_void, *mut c_void, usize, ncclDataType_t, c_int, Raw, CUstream,
        ) -> c_int;
        all_gather = "ncclAllGather" (*const c_void, *mut c_void, usize, ncclDataType_t, Raw, CUstream) -> c_int;
        reduce_scatter = "ncclReduceScatter" (
            *const c_void, *mut c_void, usize, ncclDataType_t, ncclRedOp_t, Raw, CUstream,
        ) -> c_int;
        send = "ncclSend" (*const c_void, usize, ncclDataType_t, c_int, Raw, CUstream) -> c_int;
        recv = "ncclRecv" (*mut c_void, usize, ncclDataType_t, c_int, Raw, CUstream) -> c_int;
        ? last_error = "ncclGetLastError" (Raw) -> *const c_char;
        ? split = "ncclCommSplit" (Raw, c_int, c_int, *mut Raw, *mut ncclConfig_t) -> c_int;
        ? all_to_all = "ncclAlltoAll" (
            *const c_void, *mut c_void, usize, ncclDataType_t, Raw, CUstream,
        ) -> c_int;
    }
}

/// Bytes of a unique id.
pub(in crate::nccl) const ID_BYTES: usize = size_of::<ncclUniqueId>();

/// NCCL_CONFIG_UNDEF_INT: a field that is left to NCCL.
const UNDEFINED: c_int = c_int::MIN;

impl Nccl {
    /// 10000 * major + 100 * minor + patch.
    pub(in crate::nccl) fn version(&self) -> Native<u32> {
        let mut version = 0;
        // SAFETY: the pointer is to a local.
        self.check("ncclGetVersion", unsafe { (self.version)(&mut version) }, ptr::null_mut())?;
        Ok(version as u32)
    }

    /// A new identity, by which the ranks of a communicator find each other.
    pub(in crate::nccl) fn unique_id(&self) -> Native<Vec<u8>> {
        let mut id = ncclUniqueId { internal: [0; ID_BYTES] };
        // SAFETY: the pointer is to a local.
        self.check("ncclGetUniqueId", unsafe { (self.unique_id)(&mut id) }, ptr::null_mut())?;
        Ok(id.internal.iter().map(|byte| *byte as u8).collect())
    }

    /// Opens a group: calls until [`Nccl::group_end`] become one launch.
    pub(in crate::nccl) fn group_start(&self) -> Native<()> {
        // SAFETY: no argument.
        self.check("ncclGroupStart", unsafe { (self.group_start)() }, ptr::null_mut())
    }

    /// Launches what was called since [`Nccl::group_start`].
    pub(in crate::nccl) fn group_end(&self) -> Native<()> {
        // SAFETY: no argument.
        self.check("ncclGroupEnd", unsafe { (self.group_end)() }, ptr::null_mut())
    }

    /// Whether it has an all-to-all of its own (from 2.28 on).
    pub(in crate::nccl) fn has_all_to_all(&self) -> bool {
        self.all_to_all.is_some()
    }

    fn check(&self, call: &'static str, result: c_int, comm: Raw) -> Native<()> {
        if result == 0 { Ok(()) } else { Err(Failure { call, what: self.say(result, comm) }) }
    }

    /// The sentence of an error code, and what NCCL last said.
    fn say(&self, code: c_int, comm: Raw) -> String {
        let text = |text: *const c_char| {
            // SAFETY: NCCL gives texts that end with 0, static or of the communicator.
            (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().trim().to_owned())
        };
        // SAFETY: any code is allowed; the communicator is alive or null, which both are.
        let (sentence, last) = unsafe { (text((self.error_string)(code)), self.last_error.map(|of| of(comm))) };
        let mut said = sentence.unwrap_or_else(|| format!("error {code}"));
        if let Some(last) = last.and_then(text).filter(|last| !last.is_empty()) {
            said += &format!("; NCCL says: {last}");
        }
        said
    }
}

/// A communicator on one rank.
pub(in crate::nccl) struct Comm {
    nccl: Arc<Nccl>,
    /// Null once it is gone.
    raw: AtomicPtr<ncclComm>,
}

/// Settings as ncclConfig has them. The name lives as long as the call that takes it.
struct Config {
    raw: ncclConfig_t,
    _name: CString,
}

impl Config {
    fn new(settings: &CommSettings, name: &str) -> Self {
        let name = CString::new(name).unwrap_or_default();
        let number = |value: Option<u32>| value.map_or(UNDEFINED, |value| c_int::try_from(value).unwrap_or(c_int::MAX));
        let raw = ncclConfig_t {
            size: size_of::<ncclConfig_t>(),
            // NCCL_API_MAGIC, and the version of the header that this struct is from: NCCL reads no further than that.
            magic: 0xcafe_beef,
            version: 22_809,
            blocking: 1,
            cgaClusterSize: number(settings.cga_cluster_size),
            minCTAs: number(settings.min_ctas),
            maxCTAs: number(settings.max_ctas),
            netName: ptr::null(),
            // Apart unless asked for: what lanes do at once must not wait for each other's channels.
            splitShare: c_int::from(settings.split_share.unwrap_or(false)),
            trafficClass: number(settings.traffic_class),
            commName: name.as_ptr(),
            collnetEnable: settings.sharp.map_or(UNDEFINED, c_int::from),
            CTAPolicy: UNDEFINED,
            shrinkShare: UNDEFINED,
            nvlsCTAs: UNDEFINED,
            nChannelsPerNetPeer: UNDEFINED,
            nvlinkCentricSched: UNDEFINED,
        };
        Self { raw, _name: name }
    }
}

impl Comm {
    /// Joins the communicator of `id` as `rank` of `ranks`. Blocks until all ranks have.
    ///
    /// # Errors
    /// NCCL's.
    pub(in crate::nccl) fn join(
        nccl: &Arc<Nccl>,
        id: &[u8],
        rank: u32,
        ranks: u32,
        settings: &CommSettings,
        name: &str,
    ) -> Native<Self> {
        let mut unique = ncclUniqueId { internal: [0; ID_BYTES] };
        for (to, from) in unique.internal.iter_mut().zip(id) {
            *to = *from as c_char;
        }
        let (mut config, mut raw) = (Config::new(settings, name), ptr::null_mut());
        // SAFETY: pointers are to locals that outlive the call.
        let result = unsafe { (nccl.init)(&mut raw, ranks as c_int, unique, rank as c_int, &mut config.raw) };
        nccl.check("ncclCommInitRankConfig", result, ptr::null_mut())?;
        Ok(Self { nccl: nccl.clone(), raw: AtomicPtr::new(raw) })
    }

    /// Splits off the communicator of all ranks that give the same `colour`, in the order of their `key`; none for a
    /// rank that gives no colour. Every rank of this one must call.
    ///
    /// # Errors
    /// NCCL's.
    pub(in crate::nccl) fn split(
        &self,
        colour: Option<u32>,
        key: u32,
        settings: &CommSettings,
        name: &str,
    ) -> Native<Option<Self>> {
        let Some(split) = self.nccl.split else {
            return Err(Failure { call: "ncclCommSplit", what: "NCCL 2.18 or newer has it".into() });
        };
        let (mut config, mut raw) = (Config::new(settings, name), ptr::null_mut());
        // NCCL_SPLIT_NOCOLOR is -1.
        let colour = colour.map_or(-1, |colour| colour as c_int);
        // SAFETY: pointers are to locals that outlive the call; the communicator is alive.
        let result = unsafe { split(self.raw(), colour, key as c_int, &mut raw, &mut config.raw) };
        self.check("ncclCommSplit", result)?;
        Ok((!raw.is_null()).then(|| Self { nccl: self.nccl.clone(), raw: AtomicPtr::new(raw) }))
    }

    fn raw(&self) -> Raw {
        self.raw.load(Ordering::Acquire)
    }

    fn check(&self, call: &'static str, result: c_int) -> Native<()> {
        self.nccl.check(call, result, self.raw())
    }

    /// What went wrong since the communicator was made, on the device or with a peer.
    ///
    /// # Errors
    /// That.
    pub(in crate::nccl) fn health(&self) -> Native<()> {
        /// ncclInProgress: no failure.
        const IN_PROGRESS: c_int = 7;
        let mut state = 0;
        // SAFETY: the communicator is alive, the pointer is to a local.
        self.check("ncclCommGetAsyncError", unsafe { (self.nccl.async_error)(self.raw(), &mut state) })?;
        if state == IN_PROGRESS { Ok(()) } else { self.check("an operation under way", state) }
    }

    /// Gives the communicator up, so that kernels which wait on peers end. It cannot be used any more.
    pub(in crate::nccl) fn abort(&self) {
        let raw = self.raw.swap(ptr::null_mut(), Ordering::AcqRel);
        if !raw.is_null() {
            // SAFETY: it was alive until the swap and nobody else can see it any more.
            unsafe { (self.nccl.abort)(raw) };
        }
    }

    /// All ranks get the reduction.
    pub(in crate::nccl) fn all_reduce(
        &self,
        from: Slice,
        to: Slice,
        dtype: Dtype,
        op: ReduceOp,
        on: &Stream,
    ) -> Native<()> {
        let (count, dtype, op) = (count(to, dtype), data_type(dtype), operation(op));
        // SAFETY: slices lie in memory of this rank's device that is alive as long as the rank.
        let result = unsafe { (self.nccl.all_reduce)(input(from), output(to), count, dtype, op, self.raw(), on.raw()) };
        self.check("ncclAllReduce", result)
    }

    /// The root gets the reduction.
    pub(in crate::nccl) fn reduce(
        &self,
        from: Slice,
        to: Slice,
        dtype: Dtype,
        op: ReduceOp,
        root: u32,
        on: &Stream,
    ) -> Native<()> {
        let (count, dtype, op) = (count(from, dtype), data_type(dtype), operation(op));
        let root = root as c_int;
        // SAFETY: as for all_reduce.
        let result =
            unsafe { (self.nccl.reduce)(input(from), output(to), count, dtype, op, root, self.raw(), on.raw()) };
        self.check("ncclReduce", result)
    }

    /// All ranks get the root's data.
    pub(in crate::nccl) fn broadcast(
        &self,
        from: Slice,
        to: Slice,
        dtype: Dtype,
        root: u32,
        on: &Stream,
    ) -> Native<()> {
        let (count, dtype, root) = (count(to, dtype), data_type(dtype), root as c_int);
        // SAFETY: as for all_reduce.
        let result =
            unsafe { (self.nccl.broadcast)(input(from), output(to), count, dtype, root, self.raw(), on.raw()) };
        self.check("ncclBroadcast", result)
    }

    /// All ranks get all data.
    pub(in crate::nccl) fn all_gather(&self, from: Slice, to: Slice, dtype: Dtype, on: &Stream) -> Native<()> {
        let (count, dtype) = (count(from, dtype), data_type(dtype));
        // SAFETY: as for all_reduce.
        let result = unsafe { (self.nccl.all_gather)(input(from), output(to), count, dtype, self.raw(), on.raw()) };
        self.check("ncclAllGather", result)
    }

    /// All ranks get their share of the reduction.
    pub(in crate::nccl) fn reduce_scatter(
        &self,
        from: Slice,
        to: Slice,
        dtype: Dtype,
        op: ReduceOp,
        on: &Stream,
    ) -> Native<()> {
        let (count, dtype, op) = (count(to, dtype), data_type(dtype), operation(op));
        // SAFETY: as for all_reduce.
        let result =
            unsafe { (self.nccl.reduce_scatter)(input(from), output(to), count, dtype, op, self.raw(), on.raw()) };
        self.check("ncclReduceScatter", result)
    }

    /// All ranks exchange equal parts, of `from` and `to` divided by `ranks`.
    pub(in crate::nccl) fn all_to_all(
        &self,
        from: Slice,
        to: Slice,
        dtype: Dtype,
        ranks: usize,
        on: &Stream,
    ) -> Native<()> {
        let Some(all_to_all) = self.nccl.all_to_all else {
            return Err(Failure { call: "ncclAlltoAll", what: "NCCL 2.28 or newer has it".into() });
        };
        let (count, dtype) = (count(from, dtype) / ranks, data_type(dtype));
        // SAFETY: as for all_reduce.
        let result = unsafe { all_to_all(input(from), output(to), count, dtype, self.raw(), on.raw()) };
        self.check("ncclAlltoAll", result)
    }

    /// Sends to a rank of the communicator.
    pub(in crate::nccl) fn send(&self, from: Slice, dtype: Dtype, peer: u32, on: &Stream) -> Native<()> {
        let (count, dtype) = (count(from, dtype), data_type(dtype));
        // SAFETY: as for all_reduce.
        let result = unsafe { (self.nccl.send)(input(from), count, dtype, peer as c_int, self.raw(), on.raw()) };
        self.check("ncclSend", result)
    }

    /// Receives from a rank of the communicator.
    pub(in crate::nccl) fn recv(&self, to: Slice, dtype: Dtype, peer: u32, on: &Stream) -> Native<()> {
        let (count, dtype) = (count(to, dtype), data_type(dtype));
        // SAFETY: as for all_reduce.
        let result = unsafe { (self.nccl.recv)(output(to), count, dtype, peer as c_int, self.raw(), on.raw()) };
        self.check("ncclRecv", result)
    }
}

impl Drop for Comm {
    fn drop(&mut self) {
        let raw = self.raw.swap(ptr::null_mut(), Ordering::AcqRel);
        if !raw.is_null() {
            // SAFETY: it is alive, and nobody else can see it any more.
            unsafe { (self.nccl.destroy)(raw) };
        }
    }
}

fn count(slice: Slice, dtype: Dtype) -> usize {
    slice.bytes / dtype.bytes() as usize
}

fn input(slice: Slice) -> *const c_void {
    slice.at as *const c_void
}

fn output(slice: Slice) -> *mut c_void {
    slice.at as *mut c_void
}

fn data_type(dtype: Dtype) -> ncclDataType_t {
    match dtype {
        Dtype::F64 => ncclDataType_t::ncclFloat64,
        Dtype::F32 => ncclDataType_t::ncclFloat32,
        Dtype::F16 => ncclDataType_t::ncclFloat16,
        Dtype::Bf16 => ncclDataType_t::ncclBfloat16,
        Dtype::F8e4m3 => ncclDataType_t::ncclFloat8e4m3,
        Dtype::F8e5m2 => ncclDataType_t::ncclFloat8e5m2,
        Dtype::I64 => ncclDataType_t::ncclInt64,
        Dtype::I32 => ncclDataType_t::ncclInt32,
        Dtype::I8 => ncclDataType_t::ncclInt8,
        Dtype::U8 => ncclDataType_t::ncclUint8,
    }
}

fn operation(op: ReduceOp) -> ncclRedOp_t {
    match op {
        ReduceOp::Sum => ncclRedOp_t::ncclSum,
        ReduceOp::Prod => ncclRedOp_t::ncclProd,
        ReduceOp::Min => ncclRedOp_t::ncclMin,
        ReduceOp::Max => ncclRedOp_t::ncclMax,
        ReduceOp::Avg => ncclRedOp_t::ncclAvg,
    }
}
