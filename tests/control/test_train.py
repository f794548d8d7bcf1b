"""Training an agent: interrupted and gone on with, it gives the same agent; the agent runs anywhere."""

import json
from dataclasses import replace

import pytest

import hiflash
from hiflash.cli import main
from hiflash.config import Config
from hiflash.control.environment import StalenessEnv
from hiflash.control.surrogate.file import save_surrogate
from hiflash.control.surrogate.model import Surrogate
from hiflash.control.train import STATE, Training, TrainingSettings
from hiflash.errors import ConfigError, Paused, RunError
from hiflash.report.training import training_table
from hiflash.store.agent_file import load_agent
from hiflash.store.checkpoint import load_checkpoint, save_checkpoint
from hiflash.study import policies as evaluation
from hiflash.study.calibrate import calibration_cells

QUICK = Surrogate(-1.5, 1.1, 0.5, 0.02, 0.4, 0.1, 0.1, 0.5)
SMALL = {"federation.clients": 20, "federation.edges": 4, "cloud.threshold_max": 3, "method": "hiflash"}


def training(folder, episodes=4, **settings):
    chosen = TrainingSettings(**{"episodes": episodes, "check_every": 2, "check_runs": 2, **settings})
    return Training(Config(**SMALL), QUICK, chosen, folder)


def recorded(folder):
    """Return the record of a training without the seconds that it took."""
    record = json.loads((folder / "training.json").read_text())
    return {key: value for key, value in record.items() if key != "wall_s"}


def test_a_training_that_was_interrupted_gives_the_same_agent(tmp_path):
    straight = training(tmp_path / "a").run()
    rows = []
    asked = []

    def pause():
        asked.append(None)
        return len(rows) == 3  # in the middle of the fourth episode

    with pytest.raises(Paused):
        training(tmp_path / "b").run(rows.append, pause)
    again = []
    resumed = training(tmp_path / "b").run(again.append)
    assert [row["episode"] for row in again] == [3, 4]  # what was saved after the second is not repeated
    assert resumed.digest == straight.digest
    record = recorded(tmp_path / "a")
    assert record == recorded(tmp_path / "b")
    assert [check["policy"] for check in record["checks"]] == [
        "random", "fixed-0", "fixed-1", "fixed-2", "agent", "agent"
    ]  # fmt: skip
    assert load_agent(tmp_path / "a" / "agent.safetensors").digest == straight.digest


def test_the_checks_before_the_first_episode_can_be_interrupted_and_are_kept(tmp_path, monkeypatch):
    straight = training(tmp_path / "a", episodes=1).run()
    polls = iter(range(100))
    with pytest.raises(Paused, match="give the same command again"):
        training(tmp_path / "b", episodes=1).run(pause=lambda: next(polls) == 3)  # two runs each: in fixed-0
    checked, check = [], Training._check

    def noted(self, policy, *more):
        checked.append(policy)
        return check(self, policy, *more)

    monkeypatch.setattr(Training, "_check", noted)
    assert training(tmp_path / "b", episodes=1).run().digest == straight.digest
    assert checked == ["fixed-0", "fixed-1", "fixed-2", "agent"]
    assert recorded(tmp_path / "a") == recorded(tmp_path / "b")


def test_a_finished_training_is_only_read(tmp_path):
    first = training(tmp_path / "a").run()
    rows = []
    assert training(tmp_path / "a").run(rows.append).digest == first.digest
    assert rows == []


def test_the_seconds_and_the_versions_are_those_of_the_work_not_of_reading_it_back(tmp_path, monkeypatch):
    now = [100.0]
    monkeypatch.setattr("hiflash.control.train.monotonic", lambda: now[0])
    monkeypatch.setattr("hiflash.sim.made_by.made_by", lambda: {"hiflash": "1"})

    def later(row):
        now[0] += 10.0

    def pause():
        if now[0] == 120.0:  # after the second episode
            now[0] += 1000.0  # what is not saved is done again, and counts then
            return True
        return False

    with pytest.raises(Paused):
        training(tmp_path / "a").run(later, pause)
    now[0] = 5.0  # another process has another clock
    monkeypatch.setattr("hiflash.sim.made_by.made_by", lambda: {"hiflash": "2"})
    training(tmp_path / "a").run(later)
    first = (tmp_path / "a" / "training.json").read_bytes()
    # Saved after the second episode (10 s) and after the fourth, before its row is told (10 s more).
    assert json.loads(first)["wall_s"] == 20.0
    assert json.loads(first)["made_by"] == [{"hiflash": "1"}, {"hiflash": "2"}]
    monkeypatch.setattr("hiflash.sim.made_by.made_by", lambda: {"hiflash": "3"})
    now[0] = 999.0
    training(tmp_path / "a").run()
    assert (tmp_path / "a" / "training.json").read_bytes() == first


def test_a_training_from_before_seconds_were_kept_tells_none(tmp_path):
    training(tmp_path / "a").run()
    state = load_checkpoint(tmp_path / "a" / STATE)
    old = {key: value for key, value in state.items() if key not in ("wall_s", "made_by")}
    save_checkpoint(tmp_path / "a" / STATE, old)
    training(tmp_path / "a").run()
    record = json.loads((tmp_path / "a" / "training.json").read_text())
    assert (record["wall_s"], record["made_by"]) == (None, [])


def test_the_table_has_the_agent_that_was_kept(tmp_path):
    done = training(tmp_path / "a", episodes=1)
    record = done.record(done.run())
    *before, check = record["checks"]
    same = [{**check, "episode": 1, "thresholds": [0]}, {**check, "episode": 2, "thresholds": [3]}]
    table = training_table({**record, "checks": [*before, *same]})  # the last of equal costs
    assert list(table.columns[-1].cells)[-1] == "3"


def test_another_training_does_not_take_over_a_folder(tmp_path):
    training(tmp_path / "a", episodes=2).run()
    with pytest.raises(RunError, match=r"episodes = 2.*choose another --name"):
        training(tmp_path / "a", episodes=3).run()


@pytest.mark.parametrize("file", ["config.toml", "notes.txt"])
def test_a_folder_of_something_else_is_left_alone(file, tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / file).write_text("mine")
    with pytest.raises(RunError, match=rf"a holds files that are not of a training \({file}\); choose"):
        training(tmp_path / "a").run()
    assert [path.name for path in (tmp_path / "a").iterdir()] == [file]
    assert (tmp_path / "a" / file).read_text() == "mine"


def test_two_trainings_cannot_use_one_folder_at_once(tmp_path):
    refused = []

    def meanwhile(row):
        with pytest.raises(RunError, match="in use by another process; wait for it or stop it"):
            training(tmp_path / "a").run()
        refused.append(row["episode"])

    training(tmp_path / "a", episodes=1).run(meanwhile)
    assert refused == [1]
    assert training(tmp_path / "a", episodes=1).run()  # the folder is free again


def test_a_training_that_fails_at_once_leaves_nothing(tmp_path):
    chosen = TrainingSettings(episodes=1, check_runs=1)
    low = Config(**{**SMALL, "stop.target": 0.1})
    with pytest.raises(ConfigError, match="leaves nothing to learn"):
        Training(low, QUICK, chosen, tmp_path / "a").run()
    assert not (tmp_path / "a").exists()


def test_no_seed_of_a_training_is_one_of_an_evaluation(tmp_path, monkeypatch):
    seeds, reset = [], StalenessEnv.reset

    def noted(self, *, seed=None, options=None):
        seeds.append(seed)
        return reset(self, seed=seed, options=options)

    monkeypatch.setattr(StalenessEnv, "reset", noted)
    training(tmp_path / "a", episodes=1).run()
    assert sorted(set(seeds)) == [9_000, 9_001, 10_000]
    for seed in set(seeds):
        with pytest.raises(ConfigError, match=f"seeds must be below 9000, got {seed}"):
            evaluation.plan(seeds=[seed])


@pytest.mark.parametrize(
    ("changed", "slowest"),
    [
        ({}, 2 * ([1] * 6 + [10] * 2)),
        ({"resources.slow_edge": 3.0}, [3] * 16),
        ({"mobility.moves_per_s": 0.1}, [1] * 16),
    ],
)
def test_two_episodes_of_eight_have_a_slow_edge_unless_the_federation_is_special(
    changed, slowest, tmp_path, monkeypatch
):
    found = []

    class NotedError(Exception):
        pass

    def noted(self, *, seed=None, options=None):
        found.append((self.config.resources.slow_edge, self.config.resources.fluctuation))
        raise NotedError

    monkeypatch.setattr(StalenessEnv, "reset", noted)
    monkeypatch.setattr(Training, "worth", 1.0)
    own = Training(Config(**SMALL, **changed), QUICK, TrainingSettings(), tmp_path / "a")
    for number in range(16):
        with pytest.raises(NotedError):
            own._episode(number, lambda: False)
    assert [slow for slow, _ in found] == slowest
    assert [moves for _, moves in found] == ["off", "on"] * 8


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"check_every": 0}, "check_every must be at least 1, got 0"),
        ({"check_runs": 0}, "check_runs must be at least 1, got 0"),
        ({"network": "papr"}, "network must be one of paper, shared, got 'papr'"),
    ],
)
def test_wrong_settings_are_refused(settings, message, tmp_path):
    with pytest.raises(ConfigError, match=message):
        training(tmp_path / "a", **settings)


def test_the_papers_network_is_tied_to_its_edges(tmp_path):
    agent = training(tmp_path / "a", episodes=1, network="paper").run()
    save = str(tmp_path / "a" / "agent.safetensors")
    assert agent.edges == 4
    small = {**SMALL, "cloud.threshold": "agent", "cloud.agent": save, "stop.communications": 10}
    assert hiflash.run(Config(**small)).communications == 10
    with pytest.raises(ConfigError, match="4 edges, but this federation has 5"):
        hiflash.run(Config(**{**small, "federation.edges": 5}))


def test_the_shared_network_takes_any_number_of_edges(tmp_path):
    agent = training(tmp_path / "a", episodes=1).run()
    save = str(tmp_path / "a" / "agent.safetensors")
    for edges in (2, 7):
        small = {**SMALL, "federation.edges": edges, "cloud.threshold": "agent", "cloud.agent": save}
        result = hiflash.run(Config(**{**small, "stop.communications": 10, "trainer": "none"}))
        assert (result.agent, result.communications) == (agent.digest, 10)
        assert len(result.grants_per_edge) == edges


def test_an_agent_says_what_it_was_trained_on(tmp_path):
    def about(folder, surrogate=QUICK, **more):
        chosen = TrainingSettings(episodes=1, check_runs=1, dynamics=more.pop("dynamics", "both"))
        return Training(Config(**{**SMALL, **more}), surrogate, chosen, tmp_path / folder).run().about

    first = about("a")
    assert first["config"] == StalenessEnv(SMALL, surrogate=QUICK).config.digest()
    # Thresholds are the agent's business, and resources are what `dynamics` says.
    other = about("b", **{"cloud.threshold": 2}, dynamics="fluctuating")
    assert (other["config"], other["surrogate"]) == (first["config"], first["surrogate"])
    assert about("c", **{"cost.send_weight": 2.0})["config"] != first["config"]
    assert about("d", replace(QUICK, bias=0.6))["surrogate"] != first["surrogate"]
    # The same training still, whatever its thresholds would have been.
    assert about("a", **{"cloud.threshold": 2}) == first


def test_the_worth_of_progress_is_the_least_that_was_paid(tmp_path):
    made = training(tmp_path / "a")
    made.checks = [
        {"policy": policy, "episode": episode, "cost": cost}
        for policy, episode, cost in (("random", 0, 700.0), ("fixed-0", 0, 300.0), ("agent", 2, 500.0))
    ]
    assert made.worth == 300.0
    made.checks.append({"policy": "agent", "episode": 4, "cost": 250.0})
    assert made.worth == 250.0


def test_the_command_trains_and_says_where_things_are(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_surrogate(tmp_path / "quick.json", QUICK, {})
    words = [word for key, value in SMALL.items() for word in (f"--{key}", str(value))]
    command = ["train-agent", *words, "--surrogate", "quick.json", "--episodes", "2", "--name", "mine"]
    assert main(command) == 0
    out = capsys.readouterr()
    assert "runs/mine/agent.safetensors" in out.out
    assert "fixed-0" in out.out
    assert "episode 2/2: return" in out.err
    for file in ("agent.safetensors", "training.json", "training.png", "thresholds.png", "config.toml"):
        assert (tmp_path / "runs" / "mine" / file).stat().st_size > 0
    assert main([*command, "--json"]) == 0  # again: only read
    record = json.loads(capsys.readouterr().out)
    assert len(record["episodes"]) == 2


def test_an_interrupted_command_ends_its_workers(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_surrogate(tmp_path / "quick.json", QUICK, {})
    monkeypatch.setattr("hiflash.cli.train_agent.pause_on_signal", lambda: lambda: True)
    closed = []
    monkeypatch.setattr(Training, "close", lambda self: closed.append(self))
    assert main(["train-agent", "--surrogate", "quick.json", "--name", "mine"]) == 130
    assert "give the same command again to go on with runs/mine" in capsys.readouterr().err
    assert len(closed) == 1


@pytest.mark.parametrize(
    "text", ['method = "hifl"\n', '[federation]\nassociation = "random"\n', "[stop]\ntarget = 0.8\n"]
)
def test_a_file_is_the_same_federation_for_calibrating_training_and_the_environment(
    text, tmp_path, monkeypatch
):
    file = tmp_path / "my.toml"
    file.write_text(text)
    seen = []

    def note(config, *_):
        seen.append(config)
        raise RunError("enough")

    monkeypatch.setattr("hiflash.control.train.Training", note)
    assert main(["train-agent", str(file), "--runs", str(tmp_path), "--client.lr", "0.05"]) == 2
    wanted = calibration_cells(file, settings={"client.lr": 0.05}, fit_seeds=[0])[0].config
    assert seen[0].with_settings({"cloud.threshold": "random"}) == wanted
    own = StalenessEnv(file, surrogate=QUICK).config
    assert own == wanted.with_settings({"client.lr": Config().client.lr})


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--episodes", "0"], "episodes must be at least 1"),
        (["--surrogate", "nowhere.json"], "calibrate"),
        (["--method", "fedavg"], "asynchronous"),
    ],
)
def test_wrong_input_is_told_and_leaves_nothing(words, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_surrogate(tmp_path / "quick.json", QUICK, {})
    assert main(["train-agent", "--surrogate", "quick.json", *words]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()
