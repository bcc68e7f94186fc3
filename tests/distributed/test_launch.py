"""How several processes start and meet: --nproc, torchrun, srun; and what is wrong before they do."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scepter_core import ConfigError
from scepter_core.data.sampling import EpochSampler, KeyedBatches
from scepter_core.distributed import Place, place_of
from scepter_core.distributed.processes import first_node
from tests.distributed.conftest import Many


def test_torchrun(many: Many) -> None:
    hooks = "SOLVER.TRAIN_HOOKS=[{NAME: BackwardHook}, {NAME: LogHook}]"
    command = many.command("run", hooks)[1:]
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone"]
    done = subprocess.run([*launcher, *command], cwd=many.folder, env=many.environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("train epoch 2/2 done") == 1


def test_srun(many: Many) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    processes = [
        subprocess.Popen(
            many.command("run", "SOLVER.TRAIN_HOOKS=[{NAME: BackwardHook}, {NAME: LogHook}]"),
            cwd=many.folder,
            env=many.environment(
                SLURM_STEP_ID="0", SLURM_JOB_ID="7", SLURM_STEP_NUM_TASKS="2", SLURM_STEP_TASKS_PER_NODE="2", MASTER_PORT=port,
                SLURM_STEP_NODELIST="localhost", SLURM_PROCID=str(rank), SLURM_LOCALID=str(rank),
            ),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    outs = [process.communicate(timeout=90)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outs
    assert ["train epoch 2/2 done" in out for out in outs] == [True, False]


def test_a_configuration_error_is_told_once_before_anything_starts(many: Many) -> None:
    done = many.run("run", "SOLVER.MAX_EPOCH=3", nproc=2)
    assert done.status == 2
    assert done.err.count("unknown key") == 1
    assert not done.work_dir.exists()


def test_what_only_a_run_can_find_is_told_once(many: Many) -> None:
    done = many.run("run", "ENV.STRATEGY=single", nproc=2)
    assert done.status == 2
    assert done.err == (
        'override "ENV.STRATEGY=single": ENV.STRATEGY: each of the 2 processes would train a model of its own\n'
        "    found:    single\n    expected: ddp, fsdp or auto\n"
    )
    many.run("run", "SOLVER.MAX_EPOCHS=1", nproc=2)
    again = many.run("run", "SOLVER.MAX_EPOCHS=1", nproc=2)
    assert again.status == 2
    assert again.err.count("holds the checkpoints of an earlier run") == 1


def test_a_port_that_is_taken_is_named(many: Many) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = many.run("run", RANK="0", WORLD_SIZE="2", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    assert done.status == 2
    assert f"MASTER_PORT: port {port} of " in done.err
    assert "--nproc" in done.err


def test_one_process_opens_no_port_and_two_runs_at_a_time_do_not_meet(many: Many) -> None:
    with socket.socket() as taken:  # torch's own default port
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", 29500))
        taken.listen()
        assert many.run("one").status == 0
        hooks = "SOLVER.TRAIN_HOOKS=[{NAME: BackwardHook}]"
        runs = [
            subprocess.Popen(many.command(name, hooks, "--nproc", "2"), cwd=many.folder, env=many.environment(), stderr=subprocess.PIPE)
            for name in ("two", "three")
        ]
        assert [(run.wait(timeout=90), run.stderr.read()) for run in runs] == [(0, b""), (0, b"")]


def test_machines_need_a_place_to_meet(many: Many) -> None:
    done = many.run("run", "--nnodes", "2")
    assert done.status == 2
    assert "--rdzv-endpoint HOST:PORT" in done.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--nproc", "2", "--node-rank", "1"), "--node-rank: there is one machine (--nnodes), counted from 0"),
        (("--nnodes", "2", "--rdzv-endpoint", "a:1", "--node-rank", "2"), "there are 2 machines (--nnodes)"),
        (("--nnodes", "2", "--rdzv-endpoint", "here"), "--rdzv-endpoint: is no address\n    found:    here\n"),
        (("--nnodes", "2", "--rdzv-endpoint", "here:x"), "    expected: HOST:PORT\n"),
        (("--nproc", "2", "ENV.BACKEND=nccl"), "ENV.BACKEND: is for GPUs, and the device is another one\n"),
        (("--nproc", "2", "ENV.DEVICE=cuda:99"), "ENV.DEVICE: the 2 processes of this machine would share one GPU\n"),
    ],
)
def test_what_cannot_start_is_told_at_once(many: Many, arguments: tuple[str, ...], said: str) -> None:
    done = many.run("run", *arguments)
    assert done.status == 2
    assert done.err.count(said) == 1
    assert "Traceback" not in done.err


def test_one_launcher_is_enough(many: Many) -> None:
    torchrun = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "TORCHELASTIC_RUN_ID": "a"}
    srun = {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "0", "SLURM_LOCALID": "0"}
    for launcher, number in ((torchrun, 2), (srun, 4)):
        done = many.run("run", nproc=2, **launcher)
        assert done.status == 2
        assert f"--nproc: another launcher (torchrun, srun) has started {number} of this command" in done.err


def test_hybrid_takes_machines_of_one_size(many: Many) -> None:
    """Two machines as torchrun tells of them: one with two processes, the other with one."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    runs = []
    for rank, (local_rank, local_size) in enumerate([(0, 2), (1, 2), (0, 1)]):
        place = {"RANK": rank, "WORLD_SIZE": 3, "LOCAL_RANK": local_rank, "LOCAL_WORLD_SIZE": local_size}
        environment = many.environment(MASTER_ADDR="127.0.0.1", MASTER_PORT=port, **{name: str(n) for name, n in place.items()})
        command = many.command("run", "ENV.STRATEGY={NAME: fsdp, SHARDING: hybrid}")
        runs.append(subprocess.Popen(command, cwd=many.folder, env=environment, stderr=subprocess.PIPE, text=True))
    said = [run.communicate(timeout=60)[1] for run in runs]
    assert 2 in {run.returncode for run in runs}
    assert "".join(said).count("ENV.STRATEGY.SHARDING: the machines have different numbers of processes (1, 2)\n") == 1


def test_a_trial_run_is_of_one_process(many: Many) -> None:
    done = many.run("run", "--fast-dev-run", nproc=2)
    assert done.status == 2
    assert "tries the run in one process" in done.err
    assert not done.work_dir.exists()


class TestPlace:
    """What the launchers' variables say."""

    def test_alone(self) -> None:
        assert place_of({}) == place_of({"WORLD_SIZE": "1", "RANK": "0"}) == Place()

    def test_torchrun(self) -> None:
        environment = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4", "TORCHELASTIC_RESTART_COUNT": "2"}
        assert place_of(environment) == Place(5, 8, 1, 4, 2)

    def test_not_whole(self) -> None:
        with pytest.raises(ConfigError, match=r"WORLD_SIZE 2.*does not say RANK, LOCAL_RANK"):
            place_of({"WORLD_SIZE": "2"})

    @pytest.mark.parametrize(
        ("environment", "said"),
        [
            ({"WORLD_SIZE": "many", "RANK": "0", "LOCAL_RANK": "-1"}, r"WORLD_SIZE: must be a number(.|\n)*LOCAL_RANK: must be"),
            ({"WORLD_SIZE": "2", "RANK": "2", "LOCAL_RANK": "0"}, "there is no process 2 of 2, counted from 0"),
            ({"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "2"}, r"SLURM_STEP_NUM_TASKS 2.*SLURM_PROCID, SLURM_LOCALID"),
            ({"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "x", "SLURM_PROCID": "0", "SLURM_LOCALID": "0"}, "found:    x"),
        ],
    )
    def test_nonsense(self, environment: dict[str, str], said: str) -> None:
        with pytest.raises(ConfigError, match=said):
            place_of(environment)

    def test_a_batch_script_of_slurm_is_no_step(self) -> None:
        assert place_of({"SLURM_PROCID": "0", "SLURM_NTASKS": "8", "SLURM_JOB_ID": "1"}) == Place()

    @pytest.mark.parametrize(
        ("nodes", "first"), [("a", "a"), ("a,b", "a"), ("n[03-05,9],x1", "n03"), ("gpu-[7]", "gpu-7"), ("r1n2,r1n3", "r1n2")]
    )
    def test_the_first_node(self, nodes: str, first: str) -> None:
        assert first_node(nodes) == first


@given(
    size=st.integers(1, 60),
    world=st.integers(1, 5),
    batch_size=st.integers(1, 7),
    drop_last=st.booleans(),
    start=st.integers(0, 3),
)
def test_shares_are_the_batches_of_one_process(size: int, world: int, batch_size: int, drop_last: bool, start: int) -> None:
    def batches(rank: int, processes: int, each: int) -> KeyedBatches:
        order = EpochSampler(size, shuffle=True, seed=1, mode="train")
        made = KeyedBatches(order, each, drop_last, seed=1, mode="train", rank=rank, world_size=processes)
        made.seek(2, start)
        return made

    whole = list(batches(0, 1, batch_size * world))
    shares = [batches(rank, world, batch_size) for rank in range(world)]
    assert {len(one) for one in shares} == {len(batches(0, 1, batch_size * world))}
    parts = [list(one) for one in shares]
    assert {len(part) for part in parts} == {len(whole)}
    for number, batch in enumerate(whole):
        offset = (start + number) * batch_size * world
        counted = [one.shares_of(start + number, offset) for one in shares]
        joined = [index for part, (mine, _) in zip(parts, counted, strict=True) for index in (part[number] if mine or world == 1 else [])]
        assert joined == list(batch)
        assert all(part[number] for part in parts)  # everyone makes the step
        if world > 1:
            assert {everyone for _, everyone in counted} == {len(batch)}
            assert [mine or 1 for mine, _ in counted] == [len(part[number]) for part in parts]


def test_no_variable_of_a_launcher_is_left_behind() -> None:
    assert "RANK" not in os.environ
