import math

import pytest

from fullrank.common.errors import ConfigError
from fullrank.config import PluginSettings
from fullrank.net.straggler import decode_model, encode_model


def test_a_parameter_that_is_infinite_or_no_number_is_refused() -> None:
    for value in (math.inf, -math.inf, math.nan):
        message = encode_model(PluginSettings(name="fixed_k", params={"delay_s": value}))
        with pytest.raises(ConfigError, match="cannot be read"):
            decode_model(message)


def test_a_model_comes_back_as_it_was_said() -> None:
    settings = PluginSettings(name="fixed_k", params={"delay_s": 0.5, "k": 1})
    assert decode_model(encode_model(settings)) == settings
