"""Properties are about values: how long one example takes on a busy machine says nothing."""

from hypothesis import HealthCheck, settings

settings.register_profile("drumbeat", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("drumbeat")
