"""Contribution, need and spelling over the checkpoints of a training."""

from ...extension import Extension

EXTENSION = Extension(
    package=__name__,
    summary="Contribution, need and spelling over the checkpoints of a training.",
    needs=("probing",),
    exports={"trajectory": "trajectory_runs:trajectory"},
    figures={
        "animate_trajectory": "trajectory_figure:animate_trajectory",
        "trajectory_heat_map": "trajectory_figure:trajectory_heat_map",
        "trajectory_panel": "trajectory_figure:trajectory_panel",
    },
    commands={"trajectory": ("command", "evaluations of measures and models", 50)},
    sections={"section:TRAJECTORY": 70},
    hooks={"select_run_for_page": "trajectory_runs:select_last_checkpoints"},
)
