//! Environments as launchers leave them, whole and broken.

use super::*;

fn read(variables: &[(&str, &str)]) -> Result<Option<Launch>> {
    Launch::from_environment(&|name| {
        variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_string())
    })
}

fn launch(variables: &[(&str, &str)]) -> Launch {
    read(variables).unwrap().expect("a launch")
}

/// The error of these variables, which must name each of `names`.
fn fails(variables: &[(&str, &str)], names: &[&str]) {
    let text = read(variables).expect_err("an error").to_string();
    for name in names {
        assert!(text.contains(name), "{text}");
    }
}

const TORCHRUN: [(&str, &str); 6] = [
    ("RANK", "3"),
    ("WORLD_SIZE", "16"),
    ("LOCAL_RANK", "3"),
    ("MASTER_ADDR", "node01"),
    ("MASTER_PORT", "29500"),
    ("TORCHELASTIC_RUN_ID", "none"),
];

const SRUN: [(&str, &str); 6] = [
    ("SLURM_PROCID", "5"),
    ("SLURM_NTASKS", "8"),
    ("SLURM_LOCALID", "1"),
    ("SLURM_STEP_ID", "0"),
    ("SLURM_JOB_ID", "4711"),
    ("SLURM_STEP_NODELIST", "gpu[007-008]"),
];

const MPIRUN: [(&str, &str); 5] = [
    ("OMPI_COMM_WORLD_RANK", "1"),
    ("OMPI_COMM_WORLD_SIZE", "2"),
    ("OMPI_COMM_WORLD_LOCAL_RANK", "1"),
    ("OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
    ("PMIX_NAMESPACE", "prterun-host-4711@1"),
];

const HYDRA: [(&str, &str); 4] =
    [("PMI_RANK", "1"), ("PMI_SIZE", "4"), ("MPI_LOCALRANKID", "1"), ("MPI_LOCALNRANKS", "4")];

/// Variables with some changed, added, or (as empty ones) taken away.
fn with<'a>(known: &[(&'a str, &'a str)], changes: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    changes.iter().chain(known).copied().collect()
}

#[test]
fn without_a_launcher_there_is_no_launch() {
    assert_eq!(read(&[]).unwrap(), None);
    assert_eq!(read(&[("MASTER_ADDR", "node01"), ("LOCAL_RANK", "0")]).unwrap(), None);
    assert_eq!(read(&[("RANK", " "), ("WORLD_SIZE", "")]).unwrap(), None);
}

#[test]
fn torchrun_is_met_one_port_above_its_agent() {
    let told = launch(&TORCHRUN);
    assert_eq!((told.rank, told.world, told.local_rank, told.by.name()), (3, 16, 3, "torchrun"));
    assert_eq!((told.address.as_str(), told.port, told.secret.as_str()), ("node01", 29501, "node01:29501"));
    for (agent, ours) in [("65535", 1024), ("80", 1024), ("1023", 1024), ("1024", 1025)] {
        assert_eq!(launch(&with(&TORCHRUN, &[("MASTER_PORT", agent)])).port, ours);
    }
    assert_eq!(launch(&with(&TORCHRUN, &[("MAESTRO_PORT", "4000")])).port, 4000);
    assert_eq!(launch(&with(&TORCHRUN, &[("TORCHELASTIC_RUN_ID", "abc")])).secret, "abc");
    assert_eq!(launch(&with(&TORCHRUN, &[("MAESTRO_SECRET", "s")])).secret, "s");
    // Steps of SLURM may differ from node to node.
    assert_eq!(launch(&with(&TORCHRUN, &SRUN)).secret, "node01:29501");
}

#[test]
fn a_world_of_one_needs_no_meeting_point() {
    let told = launch(&[("RANK", "0"), ("WORLD_SIZE", "1")]);
    assert_eq!((told.local_rank, told.address.as_str()), (0, "127.0.0.1"));
    assert_eq!(launch(&[("PMI_RANK", "0"), ("PMI_SIZE", "1")]).by, Launcher::Pmi);
    assert_eq!(launch(&with(&SRUN, &[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "1"), ("SLURM_LOCALID", "0")])).world, 1);
}

#[test]
fn what_torchrun_says_by_halves_is_an_error() {
    fails(&[("RANK", "0")], &["`RANK` is set", "`WORLD_SIZE` is not"]);
    fails(&[("WORLD_SIZE", "2")], &["`WORLD_SIZE` is set", "`RANK` is not"]);
    for name in ["LOCAL_RANK", "MASTER_PORT", "MASTER_ADDR"] {
        fails(&with(&TORCHRUN, &[(name, "")]), &[name]);
    }
    fails(&with(&TORCHRUN, &[("RANK", "16")]), &["`RANK` is 16", "`WORLD_SIZE` is 16"]);
    fails(&with(&TORCHRUN, &[("RANK", "one")]), &["`RANK` is `one`"]);
    fails(&with(&TORCHRUN, &[("RANK", "-1")]), &["`RANK` is `-1`"]);
    fails(&with(&TORCHRUN, &[("WORLD_SIZE", "0")]), &["`WORLD_SIZE` is 0"]);
    fails(&with(&TORCHRUN, &[("LOCAL_RANK", "16")]), &["local rank is 16"]);
    for port in ["0", "65536", "x"] {
        fails(&with(&TORCHRUN, &[("MASTER_PORT", port)]), &["MASTER_PORT", port]);
        fails(&with(&TORCHRUN, &[("MAESTRO_PORT", port)]), &["MAESTRO_PORT", port]);
    }
}

#[test]
fn srun_gives_the_first_host_and_a_port_of_the_step() {
    let told = launch(&SRUN);
    assert_eq!((told.rank, told.world, told.local_rank, told.by.name()), (5, 8, 1, "srun"));
    assert_eq!((told.address.as_str(), told.secret.as_str()), ("gpu007", "4711.0"));
    assert!((20_000..30_000).contains(&told.port));
    assert_ne!(told.port, launch(&with(&SRUN, &[("SLURM_STEP_ID", "1")])).port);
    let given = launch(&with(&SRUN, &[("MASTER_ADDR", "10.0.0.1"), ("MASTER_PORT", "3000"), ("WORLD_SIZE", "8")]));
    assert_eq!((given.address.as_str(), given.port), ("10.0.0.1", 3000));
    assert_eq!(launch(&with(&SRUN, &[("SLURM_NTASKS", "64"), ("SLURM_STEP_NUM_TASKS", "8")])).world, 8);
    // An older name for the list.
    let job = launch(&with(&SRUN, &[("SLURM_STEP_NODELIST", ""), ("SLURM_JOB_NODELIST", "a1,b2")]));
    assert_eq!(job.address, "a1");
}

#[test]
fn a_batch_script_or_shell_of_slurm_is_no_launch() {
    assert_eq!(read(&with(&SRUN, &[("SLURM_STEP_ID", "")])).unwrap(), None);
    assert_eq!(read(&with(&SRUN, &[("SLURM_STEP_ID", "4294967290")])).unwrap(), None);
    assert_eq!(read(&with(&SRUN, &[("SLURM_PROCID", "")])).unwrap(), None);
}

#[test]
fn what_srun_says_by_halves_is_an_error() {
    fails(&with(&SRUN, &[("SLURM_NTASKS", "")]), &["`SLURM_NTASKS` is not"]);
    fails(&with(&SRUN, &[("SLURM_LOCALID", "")]), &["`SLURM_LOCALID` is not"]);
    fails(&with(&SRUN, &[("SLURM_PROCID", "8")]), &["`SLURM_PROCID` is 8"]);
    fails(&with(&SRUN, &[("SLURM_STEP_NODELIST", "")]), &["MASTER_ADDR"]);
    fails(&with(&SRUN, &[("SLURM_STEP_NODELIST", "gpu[1-2")]), &["SLURM_STEP_NODELIST", "MASTER_ADDR"]);
    fails(&with(&SRUN, &[("WORLD_SIZE", "64")]), &["`WORLD_SIZE` is 64", "`SLURM_NTASKS` is 8"]);
    assert_eq!(launch(&with(&SRUN, &[("SLURM_STEP_NODELIST", "[["), ("MASTER_ADDR", "a")])).address, "a");
}

#[test]
fn lists_of_hosts_begin_where_slurm_says() {
    for (list, first) in [
        ("node[01-04,7],other3", Some("node01")),
        ("node7", Some("node7")),
        ("a,b[1-2]", Some("a")),
        ("rack[1-2]node[03-04]", Some("rack1node03")),
        ("gpu[0010,12]-ib.example.org", Some("gpu0010-ib.example.org")),
        ("login-1,node[1-2]", Some("login-1")),
        ("node[01-04", None),
        ("node[]", None),
        ("node[-3]", None),
        ("node]", None),
        (",a", None),
        ("(null)", None),
        ("", None),
    ] {
        assert_eq!(first_host(list).as_deref(), first, "{list}");
    }
}

#[test]
fn mpirun_is_met_here_or_where_it_is_told() {
    let told = launch(&MPIRUN);
    assert_eq!((told.rank, told.world, told.local_rank, told.by.name()), (1, 2, 1, "mpirun"));
    assert_eq!((told.address.as_str(), told.secret.as_str()), ("127.0.0.1", "prterun-host-4711@1"));
    assert!((20_000..30_000).contains(&told.port));
    fails(&with(&MPIRUN, &[("OMPI_COMM_WORLD_LOCAL_SIZE", "1")]), &["mpirun started 2 ranks", "set MASTER_ADDR"]);
    fails(&with(&MPIRUN, &[("OMPI_COMM_WORLD_LOCAL_SIZE", "")]), &["set MASTER_ADDR"]);
    fails(&with(&MPIRUN, &[("OMPI_COMM_WORLD_SIZE", "")]), &["`OMPI_COMM_WORLD_SIZE` is not"]);
    fails(&with(&MPIRUN, &[("OMPI_COMM_WORLD_LOCAL_RANK", "")]), &["`OMPI_COMM_WORLD_LOCAL_RANK` is not"]);
    let older = launch(&with(&MPIRUN, &[("PMIX_NAMESPACE", ""), ("OMPI_MCA_ess_base_jobid", "99")]));
    assert_eq!(older.secret, "99");
}

#[test]
fn pmi_is_met_here_or_where_it_is_told() {
    let told = launch(&HYDRA);
    assert_eq!((told.rank, told.world, told.local_rank, told.by.name()), (1, 4, 1, "pmi"));
    assert_eq!(told.address, "127.0.0.1");
    let cray =
        [("PMI_RANK", "1"), ("PMI_SIZE", "4"), ("PMI_LOCAL_RANK", "0"), ("MASTER_ADDR", "x1"), ("PALS_APID", "a")];
    assert_eq!((launch(&cray).address.as_str(), launch(&cray).secret.as_str()), ("x1", "a"));
    fails(&with(&HYDRA, &[("MPI_LOCALNRANKS", "2")]), &["pmi started 4 ranks", "set MASTER_ADDR"]);
    fails(&with(&HYDRA, &[("PMI_SIZE", "")]), &["`PMI_SIZE` is not"]);
    fails(&with(&HYDRA, &[("MPI_LOCALRANKID", "")]), &["PMI_LOCAL_RANK"]);
}

#[test]
fn whoever_started_a_process_last_is_believed() {
    assert_eq!(launch(&with(&TORCHRUN, &with(&SRUN, &MPIRUN))).by, Launcher::Torchrun);
    // mpirun and hydra start a daemon a node through srun.
    assert_eq!(launch(&with(&SRUN, &MPIRUN)).by, Launcher::Mpirun);
    assert_eq!(launch(&with(&SRUN, &HYDRA)).by, Launcher::Pmi);
    // srun sets these itself.
    assert_eq!(launch(&with(&SRUN, &[("PMI_RANK", "5"), ("PMI_SIZE", "8")])).by, Launcher::Srun);
}

#[test]
fn the_secret_is_not_shown() {
    let told = launch(&with(&TORCHRUN, &[("MAESTRO_SECRET", "hush")]));
    assert_eq!(format!("{told:?}"), "rank 3 of 16 (local 3) by torchrun, rank 0 at node01:29501");
}
