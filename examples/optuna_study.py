"""Tune learning rate and network width with Optuna: a trial is a run in a directory of its own.

pip install optuna
python examples/optuna_study.py tunes/first --trials 20

Run it again with the same directory, and the study goes on.
"""

import subprocess
from argparse import ArgumentParser
from pathlib import Path

import optuna

from fullrank.runs.evaluations import read_evaluations

RUN = ("--env", "cooperative_navigation", "--agents", "3", "--seed", "0")


def trained(directory: Path, iterations: int, settings: dict[str, object]) -> float:
    """Train a run with the settings; the mean return of the greedy episodes at its end."""
    words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    command = ["fullrank", "train", "--local", *RUN, "--iterations", str(iterations), *words]
    subprocess.run([*command, "--run-dir", str(directory)], check=True)
    return read_evaluations(directory)[-1].returns.mean


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--iterations", type=int, default=1000)
    given = parser.parse_args()
    given.directory.mkdir(parents=True, exist_ok=True)

    def objective(trial: optuna.Trial) -> float:
        settings: dict[str, object] = {
            "algorithm.learning_rate": trial.suggest_float("learning_rate", 1e-4, 1e-1, log=True),
            "algorithm.hidden": trial.suggest_categorical("hidden", [32, 64, 128]),
        }
        return trained(given.directory / f"trial-{trial.number}", given.iterations, settings)

    kept = {"study_name": "fullrank", "storage": f"sqlite:///{given.directory}/study.db"}
    study = optuna.create_study(**kept, direction="maximize", load_if_exists=True)
    study.optimize(objective, n_trials=given.trials, catch=subprocess.CalledProcessError)
    print(f"best return {study.best_value:.1f} with {study.best_params}")


if __name__ == "__main__":
    main()
