"""Duties that any process may do for everyone: one small file for each.

They are safe to run in many processes at once: each acts through a store verb that
looks again inside its transaction.
"""

from bullpen.maintenance.duty import Maintenance
from bullpen.maintenance.lapse import LapseWatch
from bullpen.maintenance.standing import StandingWatch, UnattendedWatch

__all__ = ["LapseWatch", "Maintenance", "StandingWatch", "UnattendedWatch"]
