"""Settings that a page compares."""

from fullrank.config import RunConfig, load
from fullrank_dashboard.view import settings_of


def test_settings_that_say_where_a_run_is_kept_are_not_compared_on_a_page() -> None:
    kept = {"name": "mine", "tls.certificates": "/certs", "store.url": "s3://bucket/mine"}
    assert settings_of(load(options=kept).config) == settings_of(RunConfig())
    assert settings_of(load(options={"seed": 1}).config)["seed"] == "1"
