"""Reading files with settings."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hiflash import Config
from hiflash.cli import main
from hiflash.config.settings import MOST_BYTES
from hiflash.errors import ConfigError


def test_a_folder_a_device_and_a_pipe_are_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, Path("/dev/zero"), tmp_path / "pipe"):
        with pytest.raises(ConfigError, match=f"{path} is not a file; give the path of a TOML file"):
            Config.load(path)


def test_a_file_that_is_too_long_for_settings_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "long.toml"
    path.write_bytes(b"seed = 3\n" + b"#" * (MOST_BYTES - 9))
    assert Config.load(path).seed == 3
    path.write_bytes(b"seed = 3\n" + b"#" * (MOST_BYTES - 8))
    with pytest.raises(
        ConfigError, match=r"has 1,048,577 bytes, and a file with settings has at most 1,048,576;"
    ):
        Config.load(path)


def test_the_command_line_refuses_a_device(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "/dev/zero"]) == 2
    assert capsys.readouterr().err == "error: /dev/zero is not a file; give the path of a TOML file\n"


def test_a_configuration_without_other_settings_on_top_is_not_checked_again() -> None:
    config = Config(seed=3)
    assert config.with_settings({}) is config
