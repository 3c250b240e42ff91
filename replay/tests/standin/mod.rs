//! A machine whose GPUs are not there: stand-ins of CUDA, NCCL and cuBLASLt, compiled from the C beside this file.
//!
//! Libraries belong to a process and so do the variables that say how they behave, so every test runs itself again as a
//! process of its own, in which the back end finds the stand-ins where it would find NVIDIA's.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, exit};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use std::{env, fs, thread};

/// Set in the process that has the machine.
const INSIDE: &str = "STANDIN_INSIDE";

/// Where the stand-ins write what they did, in the order in which they did it.
const LOG: &str = "STANDIN_LOG";

/// How long a test's process may take at the very most, so that what never ends fails.
const PATIENCE: Duration = Duration::from_secs(300);

/// A machine, made of variables and libraries.
pub struct Machine {
    variables: Vec<(&'static str, String)>,
    /// A function that its NCCL lacks.
    lacks: Option<&'static str>,
}

impl Machine {
    /// With so many GPUs.
    pub fn new(gpus: u32) -> Self {
        Self { variables: vec![("STANDIN_DEVICES", gpus.to_string())], lacks: None }
    }

    /// With this variable, which `cuda.c`, `nccl.c` or `standin.h` explain.
    pub fn with(mut self, variable: &'static str, value: impl ToString) -> Self {
        self.variables.push((variable, value.to_string()));
        self
    }

    /// Without this function of NCCL.
    pub fn without(mut self, function: &'static str) -> Self {
        self.lacks = Some(function);
        self
    }

    /// Runs `body` on it. `test` is the name of the test that calls.
    ///
    /// # Panics
    /// The body does, or there is no C compiler.
    pub fn run(self, test: &str, body: impl FnOnce()) {
        if env::var_os(INSIDE).is_some() {
            guarded(body);
            return;
        }
        let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("standin");
        let libraries = self.libraries(&root);
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", test, "--nocapture"]);
        // Nothing else may be found, where a machine has the real ones.
        for variable in ["CUDA_HOME", "CUDA_PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "PATH"] {
            command.env_remove(variable);
        }
        command.env("LD_LIBRARY_PATH", &libraries).env("MAESTRO_LIBRARIES", &libraries);
        command.env(INSIDE, "").env(LOG, root.join(format!("{test}.log"))).envs(self.variables);
        let output = command.output().unwrap();
        let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        // A name that no test has would run none, and find no fault.
        let passed = output.status.success() && text.contains("1 passed");
        assert!(passed, "{test}, on its machine, {}:\n{text}", output.status);
    }

    /// Compiles its libraries, unless another test of this process has, and gives their folder in `root`.
    fn libraries(&self, root: &Path) -> PathBuf {
        static BUILT: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
        let folder = root.join(self.lacks.map_or_else(|| "whole".to_owned(), |function| format!("no-{function}")));
        let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
        if built.contains(&folder) {
            return folder;
        }
        fs::create_dir_all(&folder).unwrap();
        let lacks = self.lacks.map(|function| format!("-D{function}={function}_is_not_here"));
        let cuda = "libcuda.so.1";
        compile("cuda.c", cuda, &folder, &[]);
        // The two above it find the one that is loaded already, by its name.
        let beside = ["-L.", &format!("-l:{cuda}"), "-lm"];
        compile("blas.c", "libcublasLt.so.13", &folder, &beside);
        compile("nccl.c", "libnccl.so.2", &folder, &[&beside[..], lacks.as_deref().as_slice()].concat());
        built.insert(folder.clone());
        folder
    }
}

fn compile(source: &str, library: &str, folder: &Path, more: &[&str]) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/standin").join(source);
    // Under a name of its own until it is complete: the tests may run in several processes.
    let unfinished = format!("{library}.{}", std::process::id());
    let mut command = Command::new("cc");
    command.current_dir(folder).args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-shared", "-fPIC", "-pthread"]);
    // A stream's thread may still be on its way out when the back end unloads its libraries: they stay.
    command.arg(format!("-Wl,-soname,{library},-z,nodelete")).arg("-o").arg(&unfinished).arg(&source).args(more);
    let output = command.output().expect("a C compiler is there, because Rust links by it");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    fs::rename(folder.join(unfinished), folder.join(library)).unwrap();
}

/// Runs `body`, and ends the process if it does not end.
fn guarded(body: impl FnOnce()) {
    let (done, waiting) = channel::<()>();
    thread::spawn(move || {
        if waiting.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
            eprintln!("it has not ended within {} s", PATIENCE.as_secs());
            exit(1);
        }
    });
    body();
    drop(done);
}

/// One thing that the stand-ins did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// `begin`, `end`, or what else happened.
    pub what: String,
    /// On which device.
    pub device: u32,
    /// The rest.
    pub words: Vec<String>,
}

/// What the stand-ins did on `device`, in order.
pub fn log(device: u32) -> Vec<Line> {
    let text = fs::read_to_string(env::var_os(LOG).unwrap()).unwrap();
    let lines = text.lines().map(|line| {
        let mut words = line.split(' ').map(str::to_owned);
        let (what, device) = (words.next().unwrap(), words.next().unwrap().parse().unwrap());
        Line { what, device, words: words.collect() }
    });
    lines.filter(|line| line.device == device).collect()
}
