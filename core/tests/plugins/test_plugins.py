"""Discovery, the registry, the five plugin errors, and the rules."""

import importlib
import sys
import textwrap
from importlib.metadata import distributions

import pytest
from millpond import errors
from millpond.config import PluginsConfig
from millpond.plugins import PluginRegistry, Resolution
from millpond.plugins.registry import (
    ENTRY_POINT_GROUP,
    PluginRecord,
    discover,
    effective_rules,
)

GOOD = """
    import millpond
    from millpond.spi import StateBackend
    MILLPOND_API = 1
    class Backend(StateBackend):
        name = "{name}"
        def create_keyed_backend(self, parameters): ...
    @millpond.hookimpl
    def millpond_state_backends():
        return [Backend()]
"""


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder on sys.path for distributions; returns the records found there."""
    monkeypatch.syspath_prepend(tmp_path)
    made = []

    def install(name, code, distribution=None, module=None):
        distribution = distribution or f"dist-{name}"
        module = module or f"plugin_{distribution}_{name}".replace("-", "_")
        made.append(module)
        (tmp_path / f"{module}.py").write_text(textwrap.dedent(code).format(name=name))
        info = tmp_path / f"{distribution.replace('-', '_')}-1.2.dist-info"
        info.mkdir(exist_ok=True)
        (info / "METADATA").write_text(f"Name: {distribution}\nVersion: 1.2\n")
        (info / "entry_points.txt").write_text(f"[{ENTRY_POINT_GROUP}]\n{name} = {module}\n")

    def registry(rules=None):
        importlib.invalidate_caches()
        points = [
            point
            for distribution in distributions(path=[str(tmp_path)])
            for point in distribution.entry_points
        ]
        return PluginRegistry(rules or PluginsConfig(), discover(points))

    install.registry = registry
    yield install
    for module in made:
        sys.modules.pop(module, None)


def test_a_good_plugin_is_found(site):
    """A plugin's backend is found by its entry point's name, with its distribution."""
    site("pebble", GOOD)
    registry = site.registry()
    assert registry.backend_names() == ["pebble"]
    expected = Resolution("pebble", "plugin_dist_pebble_pebble", "dist-pebble", "1.2")
    assert registry.resolve("pebble") == expected
    assert registry.backend("pebble").name == "pebble"


def test_unknown_name(site):
    """An unknown name is refused with the installed ones and the nearest spelling or a cure."""
    site("pebble", GOOD)
    with pytest.raises(errors.PluginNotFoundError, match="Did you mean 'pebble'"):
        site.registry().resolve("pebbel")
    with pytest.raises(errors.PluginNotFoundError, match="pip install millpond-rocksdb"):
        site.registry().resolve("rocksdb")


def test_broken_import_disturbs_no_other(site):
    """A plugin that cannot be imported is an error only for its own users."""
    site("broken", "import a_library_that_is_not_there")
    site("pebble", GOOD)
    registry = site.registry()
    assert registry.backend("pebble").name == "pebble"
    with pytest.raises(errors.PluginLoadError, match="No module named") as caught:
        registry.resolve("broken")
    assert caught.value.distribution == "dist-broken"
    assert {r.name: r.status.value for r in registry.records} == {
        "broken": "broken",
        "pebble": "ok",
    }


def test_incompatible_api(site):
    """A plugin of another API version is refused with both versions and the package to upgrade."""
    site("old", GOOD.replace("MILLPOND_API = 1", "MILLPOND_API = 0"))
    site("new", GOOD.replace("MILLPOND_API = 1", "MILLPOND_API = 2"))
    site("mute", GOOD.replace("MILLPOND_API = 1", ""))
    registry = site.registry()
    with pytest.raises(errors.PluginIncompatibleError, match="API 0, .* 1: upgrade dist-old"):
        registry.resolve("old")
    with pytest.raises(errors.PluginIncompatibleError, match="API 2, .* 1: upgrade millpond"):
        registry.resolve("new")
    with pytest.raises(errors.PluginLoadError, match="MILLPOND_API = 1"):
        registry.resolve("mute")


def test_two_of_one_name(site):
    """Two distributions with the same name are a conflict, which name@distribution resolves."""
    site("pebble", GOOD, "dist-one")
    site("pebble", GOOD, "dist-two")
    site("other", GOOD)
    registry = site.registry()
    with pytest.raises(errors.PluginConflictError, match="dist-one and dist-two"):
        registry.resolve("pebble")
    assert registry.backend("other").name == "other"
    assert registry.resolve("pebble@dist-two").distribution == "dist-two"


@pytest.mark.parametrize(
    ("rules", "rule"),
    [
        (PluginsConfig(block="pebble"), "plugins.block = pebble"),
        (PluginsConfig(allow="other"), "plugins.allow = other"),
        (PluginsConfig(disable_all=True), "plugins.disable-all"),
    ],
)
def test_rules(site, rules, rule):
    """A blocked plugin is not imported, and the error names the rule."""
    site("pebble", "raise AssertionError('imported')")
    with pytest.raises(errors.PluginBlockedError, match=rule):
        site.registry(rules).resolve("pebble")


def test_the_scheme_of_a_blocked_storage():
    """An unknown scheme is refused with the unused plugins and the rule that forbids them."""
    record = PluginRecord("pigeon", "millpond-pigeon", "1", "pigeon")
    registry = PluginRegistry(PluginsConfig(block=("pigeon",)), [record])
    with pytest.raises(errors.ConfigError, match="expected one of the schemes .*, got") as caught:
        registry.storage("pigeon://loft/x")
    assert "'pigeon' is blocked by plugins.block = pigeon" in str(caught.value)
    with pytest.raises(errors.ConfigError) as caught:
        PluginRegistry(PluginsConfig(), []).storage("pigeon://loft/x")
    assert "not used" not in str(caught.value)


def test_rules_of_the_environment():
    """Environment variables add blocks and replace the list of allowed plugins; 0 means no."""
    config = PluginsConfig(allow="a", block="b")
    rules = effective_rules(
        config,
        {
            "MILLPOND_PLUGINS_ALLOW": "c, d",
            "MILLPOND_PLUGINS_BLOCK": "e",
            "MILLPOND_PLUGINS_DISABLE_ALL": "0",
        },
    )
    assert rules == PluginsConfig(allow="c,d", block="b,e", disable_all=False)
    assert effective_rules(config, {"MILLPOND_PLUGINS_DISABLE_ALL": "1"}).disable_all
    disabled = PluginsConfig(disable_all=True)
    for given in ({"MILLPOND_PLUGINS_BLOCK": "e"}, {"MILLPOND_PLUGINS_DISABLE_ALL": "0"}):
        assert effective_rules(disabled, given).disable_all
    with pytest.raises(errors.ConfigError, match="^environment: MILLPOND_PLUGINS_DISABLE_ALL: "):
        effective_rules(config, {"MILLPOND_PLUGINS_DISABLE_ALL": "perhaps"})


def test_module_and_attribute(site):
    """A backend may be named module:attr, also if all plugins are disabled."""
    site("pebble", GOOD)
    registry = site.registry(PluginsConfig(disable_all=True))
    resolution = registry.resolve("plugin_dist_pebble_pebble:Backend")
    assert registry.load(resolution).name == "pebble"


def test_a_worker_with_another_version_fails_loudly(site):
    """A plugin that the driver resolved in another version is refused by the worker."""
    site("pebble", GOOD)
    resolution = Resolution("pebble", "plugin_dist_pebble_pebble", "dist-pebble", "1.1")
    for registry in (PluginRegistry(PluginsConfig(), []), site.registry()):
        with pytest.raises(
            errors.BackendMismatchError, match=r"dist-pebble 1.1, .* dist-pebble 1.2"
        ):
            registry.load(resolution)


@pytest.mark.parametrize(
    "target", ["plugin_dist_pebble_pebble", "plugin_dist_pebble_pebble:Backend"]
)
def test_a_worker_of_another_plugin_api_fails_loudly(site, target):
    """A driver with another plugin API is refused, with both versions."""
    site("pebble", GOOD)
    registry = site.registry()
    with pytest.raises(errors.BackendMismatchError, match="plugin API 2, .* plugin API 1"):
        registry.load(Resolution("pebble", target, api_version=2))


def test_a_misspelt_hook_is_noticed(site):
    """A plugin that implements an unknown hook is broken, and does not affect others."""
    site("typo", GOOD.replace("def millpond_state_backends", "def millpond_state_backendz"))
    site("pebble", GOOD)
    registry = site.registry()
    assert registry.backend_names() == ["pebble"]
    with pytest.raises(errors.PluginLoadError, match="millpond_state_backendz"):
        registry.resolve("typo")


def test_the_api_version_of_a_named_class(site):
    """A backend named module:attr states its API itself or by its module."""
    site("old", GOOD.replace("MILLPOND_API = 1", "MILLPOND_API = 0"))
    site("mute", GOOD.replace("MILLPOND_API = 1", ""))
    registry = site.registry(PluginsConfig(disable_all=True))
    with pytest.raises(errors.PluginIncompatibleError, match="API 0"):
        registry.load(registry.resolve("plugin_dist_old_old:Backend"))
    with pytest.raises(errors.PluginLoadError, match="MILLPOND_API = 1"):
        registry.load(registry.resolve("plugin_dist_mute_mute:Backend"))


def test_a_worker_keeps_to_its_rules(site):
    """A worker does not load a plugin that its own process blocks, even if the driver resolved it."""
    site("pebble", "raise AssertionError('imported')")
    resolution = Resolution("pebble", "plugin_dist_pebble_pebble", "dist-pebble", "1.2")
    registry = site.registry(PluginsConfig(block="pebble"))
    with pytest.raises(errors.PluginBlockedError, match="plugins.block"):
        registry.load(resolution)
