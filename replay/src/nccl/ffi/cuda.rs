//! CUDA's driver: devices, contexts, streams, events, memory, kernels and graphs, each owned by what frees it.
//!
//! An owner keeps the library alive and belongs to the context that was current when it was made. A rank's thread makes
//! its context current once and stays with it, so no call switches contexts.

#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::ptr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use cudarc::driver::sys::{
    CUcontext, CUdevice, CUdevice_attribute, CUdeviceptr, CUevent, CUevent_flags, CUevent_record_flags, CUfunction,
    CUfunction_attribute, CUgraph, CUgraphExec, CUmodule, CUstream, CUstream_flags, CUstreamCaptureMode,
    CUstreamWaitValue_flags,
};

use super::{Failure, Native, table};

table! {
    /// The driver's functions.
    Cuda {
        init = "cuInit" (c_uint) -> c_int;
        driver_version = "cuDriverGetVersion" (*mut c_int) -> c_int;
        error_name = "cuGetErrorName" (c_int, *mut *const c_char) -> c_int;
        error_string = "cuGetErrorString" (c_int, *mut *const c_char) -> c_int;
        device_count = "cuDeviceGetCount" (*mut c_int) -> c_int;
        device_get = "cuDeviceGet" (*mut CUdevice, c_int) -> c_int;
        device_name = "cuDeviceGetName" (*mut c_char, c_int, CUdevice) -> c_int;
        device_memory = "cuDeviceTotalMem_v2" (*mut usize, CUdevice) -> c_int;
        device_attribute = "cuDeviceGetAttribute" (*mut c_int, CUdevice_attribute, CUdevice) -> c_int;
        context_retain = "cuDevicePrimaryCtxRetain" (*mut CUcontext, CUdevice) -> c_int;
        context_release = "cuDevicePrimaryCtxRelease_v2" (CUdevice) -> c_int;
        context_set = "cuCtxSetCurrent" (CUcontext) -> c_int;
        context_priorities = "cuCtxGetStreamPriorityRange" (*mut c_int, *mut c_int) -> c_int;
        memory_info = "cuMemGetInfo_v2" (*mut usize, *mut usize) -> c_int;
        memory_alloc = "cuMemAlloc_v2" (*mut CUdeviceptr, usize) -> c_int;
        memory_free = "cuMemFree_v2" (CUdeviceptr) -> c_int;
        host_alloc = "cuMemHostAlloc" (*mut *mut c_void, usize, c_uint) -> c_int;
        host_free = "cuMemFreeHost" (*mut c_void) -> c_int;
        copy = "cuMemcpyAsync" (CUdeviceptr, CUdeviceptr, usize, CUstream) -> c_int;
        set = "cuMemsetD8Async" (CUdeviceptr, u8, usize, CUstream) -> c_int;
        stream_create = "cuStreamCreateWithPriority" (*mut CUstream, c_uint, c_int) -> c_int;
        stream_destroy = "cuStreamDestroy_v2" (CUstream) -> c_int;
        stream_synchronize = "cuStreamSynchronize" (CUstream) -> c_int;
        stream_wait = "cuStreamWaitEvent" (CUstream, CUevent, c_uint) -> c_int;
        stream_wait_value = "cuStreamWaitValue32_v2" (CUstream, CUdeviceptr, u32, c_uint) -> c_int;
        capture_begin = "cuStreamBeginCapture_v2" (CUstream, CUstreamCaptureMode) -> c_int;
        capture_end = "cuStreamEndCapture" (CUstream, *mut CUgraph) -> c_int;
        event_create = "cuEventCreate" (*mut CUevent, c_uint) -> c_int;
        event_destroy = "cuEventDestroy_v2" (CUevent) -> c_int;
        event_record = "cuEventRecord" (CUevent, CUstream) -> c_int;
        event_record_with = "cuEventRecordWithFlags" (CUevent, CUstream, c_uint) -> c_int;
        event_query = "cuEventQuery" (CUevent) -> c_int;
        event_elapsed = "cuEventElapsedTime" (*mut f32, CUevent, CUevent) -> c_int;
        module_load = "cuModuleLoadData" (*mut CUmodule, *const c_void) -> c_int;
        module_unload = "cuModuleUnload" (CUmodule) -> c_int;
        module_function = "cuModuleGetFunction" (*mut CUfunction, CUmodule, *const c_char) -> c_int;
        function_attribute = "cuFuncSetAttribute" (CUfunction, CUfunction_attribute, c_int) -> c_int;
        launch = "cuLaunchKernel" (
            CUfunction, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, CUstream, *mut *mut c_void,
            *mut *mut c_void,
        ) -> c_int;
        graph_instantiate = "cuGraphInstantiateWithFlags" (*mut CUgraphExec, CUgraph, u64) -> c_int;
        graph_launch = "cuGraphLaunch" (CUgraphExec, CUstream) -> c_int;
        graph_destroy = "cuGraphDestroy" (CUgraph) -> c_int;
        graph_exec_destroy = "cuGraphExecDestroy" (CUgraphExec) -> c_int;
    }
}

/// CUDA_ERROR_NOT_READY: what was asked about has not ended yet. No failure.
const NOT_READY: c_int = 600;

/// What a device is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::nccl) struct DeviceInfo {
    /// As `CUDA_VISIBLE_DEVICES` leaves them, from 0.
    pub(in crate::nccl) ordinal: u32,
    pub(in crate::nccl) name: String,
    /// Bytes, all of them.
    pub(in crate::nccl) memory: u64,
    /// Multiprocessors.
    pub(in crate::nccl) sms: u32,
    /// Compute capability: major, minor.
    pub(in crate::nccl) capability: (u32, u32),
    /// Bytes of shared memory that one thread block may ask for.
    pub(in crate::nccl) shared_memory: u32,
}

impl Cuda {
    /// Initialises the driver.
    ///
    /// # Errors
    /// No device, or a driver that does not fit its kernel module.
    pub(in crate::nccl) fn init(&self) -> Native<()> {
        // SAFETY: cuInit may be called at any time and any number of times.
        self.check("cuInit", unsafe { (self.init)(0) })
    }

    /// The newest CUDA that the driver serves: 1000 * major + 10 * minor.
    pub(in crate::nccl) fn version(&self) -> Native<u32> {
        let mut version = 0;
        // SAFETY: the pointer is to a local.
        self.check("cuDriverGetVersion", unsafe { (self.driver_version)(&mut version) })?;
        Ok(version as u32)
    }

    /// Every visible device.
    ///
    /// # Errors
    /// The driver's.
    pub(in crate::nccl) fn devices(&self) -> Native<Vec<DeviceInfo>> {
        let mut count = 0;
        // SAFETY: the pointer is to a local.
        self.check("cuDeviceGetCount", unsafe { (self.device_count)(&mut count) })?;
        (0..count).map(|ordinal| self.device(ordinal)).collect()
    }

    fn device(&self, ordinal: c_int) -> Native<DeviceInfo> {
        let mut device = 0;
        // SAFETY: the pointer is to a local.
        self.check("cuDeviceGet", unsafe { (self.device_get)(&mut device, ordinal) })?;
        let (mut name, mut memory) = ([0u8; 128], 0);
        // SAFETY: the buffer has the length that is passed.
        let result = unsafe { (self.device_name)(name.as_mut_ptr().cast(), name.len() as c_int, device) };
        self.check("cuDeviceGetName", result)?;
        // SAFETY: the pointer is to a local.
        self.check("cuDeviceTotalMem", unsafe { (self.device_memory)(&mut memory, device) })?;
        let attribute = |attribute| {
            let mut value = 0;
            // SAFETY: the pointer is to a local.
            let result = unsafe { (self.device_attribute)(&mut value, attribute, device) };
            self.check("cuDeviceGetAttribute", result)?;
            Ok(value as u32)
        };
        use CUdevice_attribute as Of;
        Ok(DeviceInfo {
            ordinal: ordinal as u32,
            name: CStr::from_bytes_until_nul(&name).map_or_else(|_| String::new(), |n| n.to_string_lossy().into()),
            memory: memory as u64,
            sms: attribute(Of::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            capability: (
                attribute(Of::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
                attribute(Of::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
            ),
            shared_memory: attribute(Of::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
        })
    }

    fn check(&self, call: &'static str, result: c_int) -> Native<()> {
        if result == 0 { Ok(()) } else { Err(Failure { call, what: self.say(result) }) }
    }

    /// The name and the sentence of an error code.
    fn say(&self, code: c_int) -> String {
        let text = |of: unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int| {
            let mut text = ptr::null();
            // SAFETY: the pointer is to a local; the text that it is set to is static.
            let known = unsafe { of(code, &mut text) } == 0 && !text.is_null();
            // SAFETY: the driver gave a static text that ends with 0.
            known.then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
        };
        match (text(self.error_string), text(self.error_name)) {
            (Some(sentence), Some(name)) => format!("{sentence} ({name})"),
            _ => format!("error {code}"),
        }
    }
}

/// The primary context of a device, current on the thread that made it.
pub(in crate::nccl) struct Context {
    cuda: Arc<Cuda>,
    device: CUdevice,
}

impl Context {
    /// Makes the primary context of device `ordinal` current on this thread.
    ///
    /// # Errors
    /// The driver's.
    pub(in crate::nccl) fn new(cuda: &Arc<Cuda>, ordinal: u32) -> Native<Self> {
        let (mut device, mut context) = (0, ptr::null_mut());
        // SAFETY: pointers are to locals; the context is current only after it was retained.
        unsafe {
            cuda.check("cuDeviceGet", (cuda.device_get)(&mut device, ordinal as c_int))?;
            cuda.check("cuDevicePrimaryCtxRetain", (cuda.context_retain)(&mut context, device))?;
            let this = Self { cuda: cuda.clone(), device };
            cuda.check("cuCtxSetCurrent", (cuda.context_set)(context))?;
            Ok(this)
        }
    }

    /// Bytes of device memory that are free.
    pub(in crate::nccl) fn free_memory(&self) -> Native<u64> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: pointers are to locals.
        self.cuda.check("cuMemGetInfo", unsafe { (self.cuda.memory_info)(&mut free, &mut total) })?;
        Ok(free as u64)
    }

    /// The least and the most urgent priority of streams, as CUDA counts them: smaller is more urgent.
    pub(in crate::nccl) fn priorities(&self) -> Native<(i32, i32)> {
        let (mut least, mut most) = (0, 0);
        // SAFETY: pointers are to locals.
        let result = unsafe { (self.cuda.context_priorities)(&mut least, &mut most) };
        self.cuda.check("cuCtxGetStreamPriorityRange", result)?;
        Ok((least, most))
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: it was retained once. That fails only when the process ends, and then nothing is lost.
        unsafe { (self.cuda.context_release)(self.device) };
    }
}

/// A stream that waits for no other unless told to.
pub(in crate::nccl) struct Stream {
    cuda: Arc<Cuda>,
    raw: CUstream,
}

impl Stream {
    /// A stream of this priority in the current context.
    ///
    /// # Errors
    /// The driver's.
    pub(in crate::nccl) fn new(cuda: &Arc<Cuda>, priority: i32) -> Native<Self> {
        let mut raw = ptr::null_mut();
        let flags = CUstream_flags::CU_STREAM_NON_BLOCKING as c_uint;
        // SAFETY: the pointer is to a local.
        let result = unsafe { (cuda.stream_create)(&mut raw, flags, priority) };
        cuda.check("cuStreamCreateWithPriority", result)?;
        Ok(Self { cuda: cuda.clone(), raw })
    }

    /// The handle, for other libraries.
    pub(super) fn raw(&self) -> CUstream {
        self.raw
    }

    /// What is put on the stream from now on waits for `event`, as last recorded.
    pub(in crate::nccl) fn wait(&self, event: &Event) -> Native<()> {
        // SAFETY: both handles are alive.
        self.cuda.check("cuStreamWaitEvent", unsafe { (self.cuda.stream_wait)(self.raw, event.raw, 0) })
    }

    /// What is put on the stream from now on waits until the host has [`Flag::raise`]d the flag to `value` or beyond.
    pub(in crate::nccl) fn wait_for(&self, flag: &Flag, value: u32) -> Native<()> {
        let flags = CUstreamWaitValue_flags::CU_STREAM_WAIT_VALUE_GEQ as c_uint;
        // SAFETY: the stream is alive; the flag's memory is as long as what is on the stream, which its owner sees to.
        let result = unsafe { (self.cuda.stream_wait_value)(self.raw, flag.memory.raw as u64, value, flags) };
        self.cuda.check("cuStreamWaitValue32", result)
    }

    /// Blocks the thread until the stream is empty.
    pub(in crate::nccl) fn synchronize(&self) -> Native<()> {
        // SAFETY: the handle is alive.
        self.cuda.check("cuStreamSynchronize", unsafe { (self.cuda.stream_synchronize)(self.raw) })
    }

    /// Fills memory with a byte.
    pub(in crate::nccl) fn set(&self, memory: Slice, value: u8) -> Native<()> {
        if memory.bytes == 0 {
            return Ok(());
        }
        // SAFETY: a slice lies inside memory that is alive as long as the rank.
        let result = unsafe { (self.cuda.set)(memory.at, value, memory.bytes, self.raw) };
        self.cuda.check("cuMemsetD8Async", result)
    }

    /// Copies as many bytes as both slices have.
    pub(in crate::nccl) fn copy(&self, from: Slice, to: Slice) -> Native<()> {
        let bytes = from.bytes.min(to.bytes);
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: slices lie inside memory, of a device or pinned, that is alive as long as the rank.
        self.cuda.check("cuMemcpyAsync", unsafe { (self.cuda.copy)(to.at, from.at, bytes, self.raw) })
    }

    /// From now on what this thread puts on the stream, and on streams that wait for it, becomes a graph.
    pub(in crate::nccl) fn begin_capture(&self) -> Native<()> {
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the handle is alive.
        self.cuda.check("cuStreamBeginCapture", unsafe { (self.cuda.capture_begin)(self.raw, mode) })
    }

    /// The graph of what was put on the stream since [`Stream::begin_capture`].
    ///
    /// # Errors
    /// The driver's: a stream that was not joined, a call that cannot be captured.
    pub(in crate::nccl) fn end_capture(&self) -> Native<Graph> {
        let (mut graph, mut raw) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: pointers are to locals; the graph is destroyed once it is instantiated, or could not be.
        unsafe {
            self.cuda.check("cuStreamEndCapture", (self.cuda.capture_end)(self.raw, &mut graph))?;
            let result = (self.cuda.graph_instantiate)(&mut raw, graph, 0);
            (self.cuda.graph_destroy)(graph);
            self.cuda.check("cuGraphInstantiate", result)?;
        }
        Ok(Graph { cuda: self.cuda.clone(), raw })
    }

    /// Puts a graph on the stream.
    pub(in crate::nccl) fn launch_graph(&self, graph: &Graph) -> Native<()> {
        // SAFETY: both handles are alive.
        self.cuda.check("cuGraphLaunch", unsafe { (self.cuda.graph_launch)(graph.raw, self.raw) })
    }

    /// Launches a kernel. `arguments` are the values of its parameters, eight bytes each.
    ///
    /// # Errors
    /// The driver's.
    pub(in crate::nccl) fn launch(&self, kernel: &Kernel, shape: Shape, arguments: &mut [u64]) -> Native<()> {
        let mut pointers = [ptr::null_mut::<c_void>(); 8];
        for (pointer, argument) in pointers.iter_mut().zip(arguments) {
            *pointer = ptr::from_mut(argument).cast();
        }
        let ([gx, gy, gz], [tx, ty, tz]) = (shape.grid, shape.threads);
        // SAFETY: the function is alive with its module; it reads its parameters, of at most eight bytes each on a
        // little-endian machine, from the arguments while the call lasts.
        let result = unsafe {
            (self.cuda.launch)(
                kernel.raw,
                gx,
                gy,
                gz,
                tx,
                ty,
                tz,
                shape.shared_memory,
                self.raw,
                pointers.as_mut_ptr(),
                ptr::null_mut(),
            )
        };
        self.cuda.check("cuLaunchKernel", result)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: the handle is alive and used no more.
        unsafe { (self.cuda.stream_destroy)(self.raw) };
    }
}

/// A point on a stream, with the device's time at it.
pub(in crate::nccl) struct Event {
    cuda: Arc<Cuda>,
    raw: CUevent,
}

impl Event {
    /// An event in the current context; `timed` if its time shall be read.
    ///
    /// # Errors
    /// The driver's.
    pub(in crate::nccl) fn new(cuda: &Arc<Cuda>, timed: bool) -> Native<Self> {
        let flags = if timed { CUevent_flags::CU_EVENT_DEFAULT } else { CUevent_flags::CU_EVENT_DISABLE_TIMING };
        let mut raw = ptr::null_mut();
        // SAFETY: the pointer is to a local.
        cuda.check("cuEventCreate", unsafe { (cuda.event_create)(&mut raw, flags as c_uint) })?;
        Ok(Self { cuda: cuda.clone(), raw })
    }

    /// Records it behind what is on the stream.
    pub(in crate::nccl) fn record(&self, stream: &Stream) -> Native<()> {
        // SAFETY: both handles are alive.
        self.cuda.check("cuEventRecord", unsafe { (self.cuda.event_record)(self.raw, stream.raw) })
    }

    /// Records it whenever the graph that is being captured runs, so that its time can be read then.
    pub(in crate::nccl) fn record_in_graph(&self, stream: &Stream) -> Native<()> {
        let flags = CUevent_record_flags::CU_EVENT_RECORD_EXTERNAL as c_uint;
        // SAFETY: both handles are alive.
        let result = unsafe { (self.cuda.event_record_with)(self.raw, stream.raw, flags) };
        self.cuda.check("cuEventRecordWithFlags", result)
    }

    /// Whether everything before it has ended.
    ///
    /// # Errors
    /// What went wrong on the device.
    pub(in crate::nccl) fn ended(&self) -> Native<bool> {
        // SAFETY: the handle is alive.
        match unsafe { (self.cuda.event_query)(self.raw) } {
            NOT_READY => Ok(false),
            result => self.cuda.check("cuEventQuery", result).map(|()| true),
        }
    }

    /// Nanoseconds from `earlier` to this one. Both have ended.
    pub(in crate::nccl) fn since(&self, earlier: &Self) -> Native<f64> {
        let mut ms = 0.0;
        // SAFETY: both handles are alive.
        let result = unsafe { (self.cuda.event_elapsed)(&mut ms, earlier.raw, self.raw) };
        self.cuda.check("cuEventElapsedTime", result)?;
        Ok(f64::from(ms) * 1e6)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: the handle is alive and used no more.
        unsafe { (self.cuda.event_destroy)(self.raw) };
    }
}

/// A part of some memory, as kernels and copies take it. Its owner lives as long as the rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::nccl) struct Slice {
    /// Address.
    pub(super) at: u64,
    /// Length.
    pub(in crate::nccl) bytes: usize,
}

impl Slice {
    /// The bytes of `range`, cut to what is there.
    pub(in crate::nccl) fn part(self, range: &std::ops::Range<usize>) -> Self {
        let start = range.start.min(self.bytes);
        Self { at: self.at + start as u64, bytes: range.end.clamp(start, self.bytes) - start }
    }

    /// The first `bytes` bytes, or as many as there are.
    pub(in crate::nccl) fn first(self, bytes: usize) -> Self {
        self.part(&(0..bytes))
    }

    /// The address as a kernel's argument.
    pub(in crate::nccl) fn argument(self) -> u64 {
        self.at
    }
}

/// Memory of the current device.
pub(in crate::nccl) struct DeviceMemory {
    cuda: Arc<Cuda>,
    raw: CUdeviceptr,
    bytes: usize,
}

impl DeviceMemory {
    /// Allocates. Not from a pool: what NCCL reads from another device must be open to it.
    ///
    /// # Errors
    /// The driver's.
    pub(in crate::nccl) fn new(cuda: &Arc<Cuda>, bytes: usize) -> Native<Self> {
        let mut raw = 0;
        if bytes > 0 {
            // SAFETY: the pointer is to a local.
            cuda.check("cuMemAlloc", unsafe { (cuda.memory_alloc)(&mut raw, bytes) })?;
        }
        Ok(Self { cuda: cuda.clone(), raw, bytes })
    }

    /// All of it.
    pub(in crate::nccl) fn all(&self) -> Slice {
        Slice { at: self.raw, bytes: self.bytes }
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        if self.bytes > 0 {
            // SAFETY: it was allocated and nothing uses it any more.
            unsafe { (self.cuda.memory_free)(self.raw) };
        }
    }
}

/// Memory of the host that devices copy from and to without the host's help.
pub(in crate::nccl) struct PinnedMemory {
    cuda: Arc<Cuda>,
    raw: *mut u8,
    bytes: usize,
}

impl PinnedMemory {
    /// Allocates.
    ///
    /// # Errors
    /// The driver's.
    pub(in crate::nccl) fn new(cuda: &Arc<Cuda>, bytes: usize) -> Native<Self> {
        let mut raw = ptr::null_mut();
        if bytes > 0 {
            // SAFETY: the pointer is to a local.
            cuda.check("cuMemHostAlloc", unsafe { (cuda.host_alloc)(&mut raw, bytes, 0) })?;
            // SAFETY: just allocated with this length. Zeroed, so that reading it is defined.
            unsafe { ptr::write_bytes(raw.cast::<u8>(), 0x3d, bytes) };
        }
        Ok(Self { cuda: cuda.clone(), raw: raw.cast(), bytes })
    }

    /// All of it, for copies. With unified addressing a host's address serves as a device's.
    pub(in crate::nccl) fn all(&self) -> Slice {
        Slice { at: self.raw as u64, bytes: self.bytes }
    }

    /// All of it, for the host. No copy may be under way.
    pub(in crate::nccl) fn bytes_mut(&mut self) -> &mut [u8] {
        if self.bytes == 0 {
            return &mut [];
        }
        // SAFETY: the memory is initialised, has this length, and is borrowed as long as the slice.
        unsafe { std::slice::from_raw_parts_mut(self.raw, self.bytes) }
    }
}

impl Drop for PinnedMemory {
    fn drop(&mut self) {
        if self.bytes > 0 {
            // SAFETY: it was allocated and nothing uses it any more.
            unsafe { (self.cuda.host_free)(self.raw.cast()) };
        }
    }
}

/// A number that the host raises and streams wait for.
pub(in crate::nccl) struct Flag {
    memory: PinnedMemory,
}

impl Flag {
    /// A flag at 0.
    ///
    /// # Errors
    /// The driver's.
    pub(in crate::nccl) fn new(cuda: &Arc<Cuda>) -> Native<Self> {
        let this = Self { memory: PinnedMemory::new(cuda, size_of::<AtomicU32>())? };
        this.raise(0);
        Ok(this)
    }

    /// Lets whoever waits for `value`, or less, go on.
    pub(in crate::nccl) fn raise(&self, value: u32) {
        // SAFETY: the memory is page-aligned, has four bytes, and is only ever touched through this atomic and by
        // devices, which read it.
        unsafe { AtomicU32::from_ptr(self.memory.raw.cast()) }.store(value, Ordering::Release);
    }
}

/// Loaded kernels.
pub(in crate::nccl) struct Module {
    cuda: Arc<Cuda>,
    raw: CUmodule,
}

impl Module {
    /// Loads PTX (text that ends with 0) or a cubin into the current context.
    ///
    /// # Errors
    /// The driver's: PTX that is newer than the driver, or a cubin of another architecture.
    pub(in crate::nccl) fn new(cuda: &Arc<Cuda>, image: &[u8]) -> Native<Rc<Self>> {
        let mut raw = ptr::null_mut();
        // SAFETY: the image is complete: PTX with its 0, or a cubin, which carries its length.
        cuda.check("cuModuleLoadData", unsafe { (cuda.module_load)(&mut raw, image.as_ptr().cast()) })?;
        Ok(Rc::new(Self { cuda: cuda.clone(), raw }))
    }

    /// One of its kernels, which may use `shared_memory` bytes of dynamic shared memory.
    ///
    /// # Errors
    /// No kernel of this name, or too much shared memory.
    pub(in crate::nccl) fn kernel(self: &Rc<Self>, name: &str, shared_memory: u32) -> Native<Kernel> {
        let mut raw = ptr::null_mut();
        let text = CString::new(name)
            .map_err(|_| Failure { call: "cuModuleGetFunction", what: "the name of the kernel holds a 0".into() })?;
        // SAFETY: pointers are to locals.
        let result = unsafe { (self.cuda.module_function)(&mut raw, self.raw, text.as_ptr()) };
        self.cuda.check("cuModuleGetFunction", result)?;
        if shared_memory > 0 {
            let attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            // SAFETY: the function has just been found.
            let result = unsafe { (self.cuda.function_attribute)(raw, attribute, shared_memory as c_int) };
            self.cuda.check("cuFuncSetAttribute", result)?;
        }
        Ok(Kernel { raw, _module: self.clone() })
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // SAFETY: its kernels hold it, so none is left.
        unsafe { (self.cuda.module_unload)(self.raw) };
    }
}

/// One kernel of a module.
pub(in crate::nccl) struct Kernel {
    raw: CUfunction,
    _module: Rc<Module>,
}

/// How a kernel is launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::nccl) struct Shape {
    /// Blocks in x, y, z.
    pub(in crate::nccl) grid: [u32; 3],
    /// Threads a block in x, y, z.
    pub(in crate::nccl) threads: [u32; 3],
    /// Bytes of dynamic shared memory a block.
    pub(in crate::nccl) shared_memory: u32,
}

/// An instantiated graph.
pub(in crate::nccl) struct Graph {
    cuda: Arc<Cuda>,
    raw: CUgraphExec,
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: the handle is alive and used no more.
        unsafe { (self.cuda.graph_exec_destroy)(self.raw) };
    }
}
