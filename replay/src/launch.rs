//! Where this process stands among others, as its launcher tells it through the environment.
//!
//! It reads variables and decides; it opens no connection and asks no launcher. The variables come through a function,
//! so that tests need no environment. An empty variable counts as one that is not set.
//!
//! The order of trust is from the inside out, since launchers start each other: torchrun is started by srun, and mpirun
//! under SLURM starts its daemons by srun, whose variables (one task a node) then reach every process. So the variables
//! of torchrun come first, then those of Open MPI's mpirun and of hydra, then those of srun. A PMI rank alone comes
//! last: srun sets it, too.

use std::fmt;

use crate::store::digest::digest;
use crate::{Error, Result};

/// One process of a launch: a rank, and where its rank 0 is met.
#[derive(Clone, PartialEq, Eq)]
pub struct Launch {
    /// This process among all.
    pub rank: u32,
    /// How many processes there are.
    pub world: u32,
    /// This process among those of its machine.
    pub local_rank: u32,
    /// Who said so.
    pub by: Launcher,
    /// The machine of rank 0: a name or an address.
    pub address: String,
    /// The port on which rank 0 is met. Nobody else listens there: under torchrun it is one above the agent's.
    pub port: u16,
    /// What the processes of this launch have in common and others have not. It goes into digests and is never shown.
    pub secret: String,
}

/// Who starts processes and tells them their ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launcher {
    /// PyTorch's torchrun, or anyone who sets the same variables.
    Torchrun,
    /// SLURM's srun.
    Srun,
    /// Open MPI's mpirun.
    Mpirun,
    /// Anything that sets PMI's variables: the mpiexec of MPICH and Intel MPI, Cray's launchers.
    Pmi,
}

impl Launcher {
    /// Its name in messages and run folders.
    pub fn name(self) -> &'static str {
        match self {
            Self::Torchrun => "torchrun",
            Self::Srun => "srun",
            Self::Mpirun => "mpirun",
            Self::Pmi => "pmi",
        }
    }
}

impl fmt::Debug for Launch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rank, world, local_rank, by, address, port, secret: _ } = self;
        write!(f, "rank {rank} of {world} (local {local_rank}) by {}, rank 0 at {address}:{port}", by.name())
    }
}

impl Launch {
    /// What the environment says, read through `var`. `None` if no launcher started this process.
    ///
    /// `MASTER_ADDR`, `MASTER_PORT`, `MAESTRO_PORT` and `MAESTRO_SECRET` go before what is derived.
    ///
    /// # Errors
    /// Variables that say half, contradict each other or hold no number; a rank 0 that cannot be found from them.
    pub fn from_environment(var: &dyn Fn(&str) -> Option<String>) -> Result<Option<Self>> {
        let env = Environment(var);
        let told = match torchrun(&env)? {
            Some(told) => Some(told),
            None => mpi(&env)?,
        };
        let Some(told) = told else { return Ok(None) };
        told.check(&env)?;
        let address = match env.text("MASTER_ADDR").or_else(|| told.address()) {
            Some(address) => address,
            None => {
                return Err(error(
                    format!("{} started {} ranks and nothing says where rank 0 is", told.by.name(), told.world),
                    "set MASTER_ADDR to the machine of rank 0, on all ranks",
                ));
            }
        };
        let port = told.port(&env)?;
        let secret =
            env.text("MAESTRO_SECRET").or_else(|| told.job.clone()).unwrap_or_else(|| format!("{address}:{port}"));
        let Told { by, rank, world, local_rank, .. } = told;
        Ok(Some(Self { rank, world, local_rank, by, address, port, secret }))
    }
}

/// What one launcher told.
struct Told {
    by: Launcher,
    rank: u32,
    world: u32,
    local_rank: u32,
    /// The variables of rank and world, for errors.
    names: (&'static str, &'static str),
    /// The machine of rank 0, where that is known.
    host: Option<String>,
    /// How many ranks this machine has, where that is known.
    local: Option<u32>,
    /// What names the job, the same on all its ranks and on no other job's.
    job: Option<String>,
}

impl Told {
    fn check(&self, env: &Environment<'_>) -> Result<()> {
        let (rank, world) = self.names;
        if self.rank >= self.world {
            return Err(error(
                format!("`{rank}` is {} and `{world}` is {}", self.rank, self.world),
                "ranks count from 0 and stay below the number of ranks",
            ));
        }
        if self.local_rank >= self.world {
            return Err(error(
                format!("the local rank is {} and `{world}` is {}", self.local_rank, self.world),
                "local ranks count from 0 on each machine",
            ));
        }
        match env.number("WORLD_SIZE")? {
            Some(size) if size != self.world => Err(error(
                format!("`WORLD_SIZE` is {size} and `{world}` is {}", self.world),
                "start one process a GPU, or unset WORLD_SIZE",
            )),
            _ => Ok(()),
        }
    }

    fn address(&self) -> Option<String> {
        let here = self.world == 1 || self.local == Some(self.world);
        self.host.clone().or_else(|| here.then(|| "127.0.0.1".to_string()))
    }

    /// The port of rank 0: given, one beside the agent's, or one that follows from the job.
    fn port(&self, env: &Environment<'_>) -> Result<u16> {
        if let Some(port) = env.port("MAESTRO_PORT")? {
            return Ok(port);
        }
        match (self.by, env.port("MASTER_PORT")?) {
            // torchrun's agent listens on its port for as long as its processes run.
            (Launcher::Torchrun, Some(port)) => Ok(port.checked_add(1).filter(|port| *port >= 1024).unwrap_or(1024)),
            (Launcher::Torchrun, None) if self.world > 1 => Err(error(
                "`RANK` and `WORLD_SIZE` are set and `MASTER_PORT` is not",
                "start through torchrun, or set MASTER_PORT or MAESTRO_PORT to one free port, on all ranks",
            )),
            (_, Some(port)) => Ok(port),
            (_, None) => {
                let job = self.job.as_deref().unwrap_or_default();
                // Below 10_000, so it fits.
                Ok(20_000 + (digest(&[b"port", job.as_bytes()]) % 10_000) as u16)
            }
        }
    }
}

fn torchrun(env: &Environment<'_>) -> Result<Option<Told>> {
    let names = ("RANK", "WORLD_SIZE");
    // Scripts for srun and mpirun often export WORLD_SIZE alone; then it is only compared.
    if env.text(names.0).is_none() && ["OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "PMI_RANK"].iter().any(|n| env.has(n)) {
        return Ok(None);
    }
    let Some((rank, world)) = env.pair(names, "start through torchrun, or set both or neither")? else {
        return Ok(None);
    };
    let local_rank = match env.number("LOCAL_RANK")? {
        Some(local) => local,
        None if world == 1 => 0,
        None => {
            return Err(error(
                "`RANK` and `WORLD_SIZE` are set and `LOCAL_RANK` is not",
                "start through torchrun, or set LOCAL_RANK to this process's number on its machine, from 0",
            ));
        }
    };
    // A job or step of SLURM does not name this launch: the agents of its nodes may be steps of their own.
    let job = env.text("TORCHELASTIC_RUN_ID").filter(|id| id != "none");
    Ok(Some(Told { by: Launcher::Torchrun, rank, world, local_rank, names, host: None, local: None, job }))
}

/// Whoever starts MPI programs, from the inside out.
fn mpi(env: &Environment<'_>) -> Result<Option<Told>> {
    if let Some(told) = mpirun(env)? {
        return Ok(Some(told));
    }
    // Hydra's mark, which srun does not set beside PMI_RANK.
    if env.has("MPI_LOCALRANKID") {
        return pmi(env);
    }
    match srun(env)? {
        Some(told) => Ok(Some(told)),
        None => pmi(env),
    }
}

fn mpirun(env: &Environment<'_>) -> Result<Option<Told>> {
    let names = ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE");
    let Some((rank, world)) = env.pair(names, "start through mpirun, which sets both")? else { return Ok(None) };
    let local_rank = env.needed("OMPI_COMM_WORLD_LOCAL_RANK", names.0, "start through mpirun, which sets both")?;
    let local = env.number("OMPI_COMM_WORLD_LOCAL_SIZE")?;
    // The first from version 4 on, the second until then.
    let job = env.text("PMIX_NAMESPACE").or_else(|| env.text("OMPI_MCA_ess_base_jobid"));
    Ok(Some(Told { by: Launcher::Mpirun, rank, world, local_rank, names, host: None, local, job }))
}

fn srun(env: &Environment<'_>) -> Result<Option<Told>> {
    /// Steps from here on are SLURM's own: the batch script, an interactive shell. They have a SLURM_PROCID of 0 and the
    /// job's SLURM_NTASKS, and are no launch.
    const SPECIAL: u32 = 0xffff_fff0;
    let help = "start through srun, which sets both";
    let Some(step) = env.number("SLURM_STEP_ID")?.or(env.number("SLURM_STEPID")?) else { return Ok(None) };
    let Some(rank) = env.number("SLURM_PROCID")? else { return Ok(None) };
    if step >= SPECIAL {
        return Ok(None);
    }
    let (name, world) = match env.number("SLURM_STEP_NUM_TASKS")? {
        Some(world) => ("SLURM_STEP_NUM_TASKS", world),
        None => ("SLURM_NTASKS", env.needed("SLURM_NTASKS", "SLURM_PROCID", help)?),
    };
    let local_rank = env.needed("SLURM_LOCALID", "SLURM_PROCID", help)?;
    let lists = ["SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"];
    let host = match lists.iter().find_map(|name| Some((name, env.text(name)?))) {
        // With MASTER_ADDR, no list has to be understood.
        Some((name, list)) if !env.has("MASTER_ADDR") => Some(first_host(&list).ok_or_else(|| {
            error(format!("`{name}` is `{list}`, which is no list of hosts"), "set MASTER_ADDR to rank 0's machine")
        })?),
        _ => None,
    };
    let id = env.text("SLURM_JOB_ID").or_else(|| env.text("SLURM_JOBID"));
    let job = id.map(|id| format!("{id}.{step}"));
    let names = ("SLURM_PROCID", name);
    Ok(Some(Told { by: Launcher::Srun, rank, world, local_rank, names, host, local: None, job }))
}

fn pmi(env: &Environment<'_>) -> Result<Option<Told>> {
    let names = ("PMI_RANK", "PMI_SIZE");
    let Some((rank, world)) = env.pair(names, "start through mpiexec, which sets both")? else { return Ok(None) };
    let local_rank = match env.number("MPI_LOCALRANKID")?.or(env.number("PMI_LOCAL_RANK")?) {
        Some(local) => local,
        None if world == 1 => 0,
        None => {
            return Err(error(
                "`PMI_RANK` is set, and neither `MPI_LOCALRANKID` nor `PMI_LOCAL_RANK` is",
                "set PMI_LOCAL_RANK to this process's number on its machine, from 0",
            ));
        }
    };
    let local = env.number("MPI_LOCALNRANKS")?.or(env.number("PMI_LOCAL_SIZE")?);
    let job = env.text("PMI_JOBID").or_else(|| env.text("PALS_APID"));
    Ok(Some(Told { by: Launcher::Pmi, rank, world, local_rank, names, host: None, local, job }))
}

/// The first host of a list as SLURM writes them: `node[01-04,7],other3` gives `node01`.
fn first_host(list: &str) -> Option<String> {
    let mut host = String::new();
    let mut rest = list;
    while let Some(at) = rest.find(['[', ',']) {
        host += &rest[..at];
        if rest[at..].starts_with(',') {
            rest = "";
            break;
        }
        let (inside, after) = rest[at + 1..].split_once(']')?;
        let first = inside.split(['-', ',']).next().filter(|first| !first.is_empty())?;
        host += first;
        rest = after;
    }
    host += rest;
    let sound = !host.is_empty() && !host.contains([']', '(', ')']) && !host.contains(char::is_whitespace);
    sound.then_some(host)
}

/// The environment, with errors that name the variable.
struct Environment<'v>(&'v dyn Fn(&str) -> Option<String>);

impl Environment<'_> {
    fn text(&self, name: &str) -> Option<String> {
        let value = (self.0)(name)?;
        let value = value.trim();
        (!value.is_empty()).then(|| value.to_string())
    }

    fn has(&self, name: &str) -> bool {
        self.text(name).is_some()
    }

    fn number(&self, name: &str) -> Result<Option<u32>> {
        self.parse(name, "a whole number from 0")
    }

    fn port(&self, name: &str) -> Result<Option<u16>> {
        let wanted = "a port from 1 to 65535";
        match self.parse(name, wanted)? {
            Some(0) => Err(no(name, "0", wanted)),
            port => Ok(port),
        }
    }

    fn parse<T: std::str::FromStr>(&self, name: &str, wanted: &str) -> Result<Option<T>> {
        let Some(text) = self.text(name) else { return Ok(None) };
        text.parse().map(Some).map_err(|_| no(name, &text, wanted))
    }

    /// The number of `name`, which whoever set `beside` sets as well.
    fn needed(&self, name: &str, beside: &str, help: &str) -> Result<u32> {
        self.number(name)?.ok_or_else(|| error(format!("`{beside}` is set and `{name}` is not"), help))
    }

    /// Two numbers that are set together or not at all.
    fn pair(&self, (one, other): (&str, &str), help: &str) -> Result<Option<(u32, u32)>> {
        match (self.has(one), self.has(other)) {
            (false, false) => Ok(None),
            _ => Ok(Some((self.needed(one, other, help)?, self.needed(other, one, help)?))),
        }
    }
}

fn no(name: &str, text: &str, wanted: &str) -> Error {
    error(format!("`{name}` is `{text}`, which is not {wanted}"), format!("set `{name}` right, or unset it"))
}

fn error(what: impl Into<String>, help: impl Into<String>) -> Error {
    Error::Launch { what: what.into(), help: help.into() }
}

#[cfg(test)]
mod tests;
