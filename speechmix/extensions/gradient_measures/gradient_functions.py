"""The functions of this extension's measures, as the registry knows them."""

from ...mixing.measures.measure_functions import implement
from .chefer import chefer
from .gradients import (
    check_path_options,
    deeplift,
    gradient_input,
    hta,
    hta_input,
    integrated_gradients,
)

implement("hta", hta)
implement("hta_input", hta_input)
implement("gradient_input", gradient_input)
implement("integrated_gradients", integrated_gradients, check_options=check_path_options)
implement("deeplift", deeplift, check_options=check_path_options)
implement("chefer", chefer)
