"""What a method will need, without training: one number per class stands for the model.

May import everything but the command line. docs/forecast.md explains it, decision 59 has the reasons.
"""

from hiflash.study.forecast.closed_form import expected_communications
from hiflash.study.forecast.study import Forecast, forecast

__all__ = ["Forecast", "expected_communications", "forecast"]
