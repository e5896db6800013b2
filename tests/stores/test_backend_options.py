"""A backend's options are checked when a job is built, and the error names their source."""

import attrs
import millpond as mp
import pytest
from millpond import errors
from millpond.config import structure_options
from millpond.operator.opening import configured_backend

WRONG = [("heap", "size", 1), ("rocksdb", "bloom-bits", "many"), ("rocksdb", "blom-bits", 1),
         ("rocksdb", "predefined", "wet"), ("lmdb", "max-states", "x"), ("lmdb", "colour", 1)]  # fmt: skip


@pytest.mark.parametrize(("backend", "option", "value"), WRONG)
def test_when_a_job_is_built(tmp_path, backend, option, value):
    """The plan of a Spark job refuses a wrong option with its source and key."""
    key = f"backend.{backend}.{option}"
    conf = {"spark.millpond.state.backend": backend, f"spark.millpond.{key}": str(value)}
    with pytest.raises(errors.ConfigError, match=f"^Spark configuration: spark.millpond.{key}: "):
        configured_backend(mp.Config.from_spark_conf(conf.items()))
    toml = tmp_path / "millpond.toml"
    toml.write_text(f"[millpond]\n'state.backend' = '{backend}'\n{key} = '{value}'\n")
    with pytest.raises(errors.ConfigError, match=rf"millpond\.toml: millpond\.{key}: "):
        configured_backend(mp.Config.from_toml(toml))
    with pytest.raises(errors.ConfigError, match=rf"^Config\(\.\.\.\): {key}"):
        mp.open_keyed_backend(
            backend, key_type=str, directory=tmp_path / "state", config=mp.Config({key: value})
        )


def test_options_of_single_states():
    """Options of a single state are refused when a job is built, if the backend does not support them."""
    config = mp.Config({"state.backend": "lmdb", "backend.lmdb.state.spent.size": 1})
    with pytest.raises(errors.UnsupportedCapabilityError, match="per-state-options"):
        configured_backend(config)


def test_sections_with_required_options_are_filled():
    """A class whose fields have no defaults is structured, and a refused value is named by its key."""

    @attrs.frozen
    class Section:
        path: str
        most: int = attrs.field(validator=attrs.validators.ge(1))

    made = structure_options(Section, {"path": "a", "most": 1}, "here", "section")
    assert made == Section("a", 1)
    with pytest.raises(errors.ConfigError, match=r"here: section\.most: "):
        structure_options(Section, {"path": "a", "most": 0}, "here", "section")
