"""The installed plugins, the rules about loading plugins, and the registry of loaded plugins."""

from __future__ import annotations

import enum
import logging
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import cache, cached_property, partial
from importlib import import_module
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, version
from itertools import chain
from operator import itemgetter
from os import PathLike
from typing import Any

import attrs
import pluggy
from typing_extensions import override

from millpond.arguments import nearest
from millpond.backend.bulk_keys import StateKeys
from millpond.backend.keyed_backend import KeyedStateBackend
from millpond.config import Config, PluginsConfig
from millpond.config.option_sources import OptionSource
from millpond.errors import (
    BackendMismatchError,
    ConfigError,
    PluginBlockedError,
    PluginConflictError,
    PluginError,
    PluginIncompatibleError,
    PluginLoadError,
    PluginNotFoundError,
)
from millpond.operator_id import NAME_RULE, is_plain_name
from millpond.plugins import builtin
from millpond.savepoints.savepoint_file import locate_savepoint
from millpond.snapshots.handles import SavepointHandle
from millpond.snapshots.strategy import SnapshotStrategy
from millpond.spi import hooks as hookspecs
from millpond.spi.backend import KeyedStates, RegisteredState, StateBackend, StateContext
from millpond.spi.hooks import API_VERSION
from millpond.state.interfaces import State, attach_bulk_keys
from millpond.state.ttl.ttl_states import stamped_descriptor
from millpond.storage.checkpoint_storage import CheckpointStorage, open_storage
from millpond.types import TypeSerializer
from millpond.types.custom_serializer import CustomSerializer

ENTRY_POINT_GROUP = "millpond.plugins"
_ENVIRONMENT = "MILLPOND_PLUGINS_"
_RULES = ("allow", "block", "disable_all")


class Status(enum.Enum):
    """Whether an installed plugin can be used."""

    OK = "ok"
    BROKEN = "broken"
    BLOCKED = "blocked"
    DUPLICATE = "duplicate"
    INCOMPATIBLE = "incompatible"


@attrs.define
class PluginRecord:
    """A plugin that an installed distribution announces by an entry point.

    Attributes:
        name: the name of the entry point, by which the plugin is identified.
        distribution: the distribution that announces the plugin.
        version: the version of the distribution.
        target: the value of the entry point: the module to import.
        status: whether the plugin can be used.
        reason: the reason why the plugin cannot be used, as text.
        error: the error that is raised if the plugin is used.
    """

    name: str
    distribution: str
    version: str
    target: str
    status: Status = Status.OK
    reason: str = ""
    error: Exception | None = None
    plugin: Any = None
    capabilities: tuple[str, ...] = ()

    def fail(self, status: Status, error: Exception) -> None:
        """Mark the plugin as unusable with ``status``; using it will raise ``error``."""
        self.status, self.error, self.reason = status, error, str(error)


def discover(points: Iterable[EntryPoint] | None = None) -> list[PluginRecord]:
    """Return all announced plugins, including duplicates, sorted by name and distribution.

    If one distribution announces an entry point twice, the second is ignored. This happens if an
    editable install is next to a wheel.
    """
    found = entry_points(group=ENTRY_POINT_GROUP) if points is None else points
    unique = {}
    for point in found:
        name = point.dist.name if point.dist else "unknown"
        version = point.dist.version if point.dist else "0"
        unique[point.name, name, point.value] = PluginRecord(point.name, name, version, point.value)
    return [unique[key] for key in sorted(unique)]


def effective_rules(
    config: PluginsConfig, environment: Mapping[str, str] | None = None
) -> PluginsConfig:
    """Combine the configured rules with ``MILLPOND_PLUGINS_ALLOW|BLOCK|DISABLE_ALL``.

    The environment's allow-list replaces the configured one. The two block-lists are joined. All
    plugins are disabled if either the configuration or the environment disables them.
    """
    environment = os.environ if environment is None else environment
    variables = {f"plugins.{key.replace('_', '-')}": _ENVIRONMENT + key.upper() for key in _RULES}
    options = {key: environment[name] for key, name in variables.items() if environment.get(name)}
    if not options:
        return config
    extra = Config(options, place=OptionSource("environment", keys=variables)).plugins
    return PluginsConfig(
        allow=extra.allow or config.allow,
        block=config.block + extra.block,
        disable_all=config.disable_all or extra.disable_all,
    )


def blocking_rule(name: str, rules: PluginsConfig) -> str | None:
    """Return the rule that forbids the plugin ``name``, as text; None if no rule forbids it."""
    if rules.disable_all:
        return "plugins.disable-all"
    if name in rules.block:
        return f"plugins.block = {', '.join(rules.block)}"
    if rules.allow and name not in rules.allow:
        return f"plugins.allow = {', '.join(rules.allow)}"
    return None


@attrs.frozen
class Resolution:
    """The location of a backend's code and the version that the driver saw.

    Attributes:
        name: the backend's name in the configuration.
        target: the plugin's module, or ``module:attr``.
        distribution: the plugin's distribution; empty if the configuration names the backend as
            ``module:attr``.
        version: the distribution's version on the driver.
        api_version: the version of the plugin API that the driver's Millpond uses.
    """

    name: str
    target: str
    distribution: str = ""
    version: str = ""
    api_version: int = API_VERSION

    def require_same(self) -> None:
        """Raise BackendMismatchError unless this process has the same versions as the driver."""
        if self.api_version != API_VERSION:
            theirs, ours = (f"plugin API {n}" for n in (self.api_version, API_VERSION))
            raise BackendMismatchError(self.name, theirs, ours)
        try:
            found = version(self.distribution) if self.distribution else self.version
        except PackageNotFoundError:  # a plugin that was shipped as a bare zip has no metadata
            return
        if found != self.version:
            theirs, ours = (f"{self.distribution} {each}" for each in (self.version, found))
            raise BackendMismatchError(self.name, theirs, ours)


def import_target(name: str, distribution: str, found: str, target: str) -> Any:
    """Import ``target``, which is ``module`` or ``module:attr``, and check its API version.

    The API version is the attribute ``MILLPOND_API`` of the imported object. If the object lacks
    the attribute, the version is that of the module or of the nearest package around the module.
    """
    module_name, _, attribute = target.partition(":")
    try:
        module = import_module(module_name)
        loaded: Any = module
        for part in filter(None, attribute.split(".")):
            loaded = getattr(loaded, part)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise PluginLoadError(name, distribution or module_name, found, target, reason) from error
    api = _api_version(loaded, module_name)
    if not isinstance(api, int):
        reason = "it does not say which plugin API it speaks (MILLPOND_API = 1)"
        raise PluginLoadError(name, distribution or module_name, found, target, reason)
    if api != API_VERSION:
        raise PluginIncompatibleError(name, distribution or module_name, found, api, API_VERSION)
    return loaded


def _api_version(loaded: Any, module_name: str) -> Any:
    """Return the API version of ``loaded``, or else of the nearest module around it, or None."""
    places = [loaded]
    while module_name:
        places.append(sys.modules.get(module_name))
        module_name = module_name.rpartition(".")[0]
    stated = (getattr(place, "MILLPOND_API", None) for place in places)
    return next((api for api in stated if api is not None), None)


_LOG = logging.getLogger(__name__)


KNOWN_DISTRIBUTIONS = {
    "heap": "millpond-heap",
    "rocksdb": "millpond-rocksdb",
    "lmdb": "millpond-lmdb",
}


_BAD_NAME = f"its name must be {NAME_RULE}"


class PluginRegistry:
    """All installed plugins, and the rules that say which of them may be loaded.

    Only the rules are pickled. Unpickling a registry looks for the installed plugins again.

    A registry is made from the job's configuration when a backend is opened, when an operator is
    planned, in each worker, and by the command line. It is passed to the code that needs plugins.

    Attributes:
        rules: the rules that say which plugins may be loaded.
        records: every announced plugin with its status.
        hook: pluggy's caller of hooks, which returns the results of all plugins.
    """

    def __init__(self, rules: PluginsConfig, records: Iterable[PluginRecord] | None = None) -> None:
        self.rules = rules
        self._manager = pluggy.PluginManager(hookspecs.PROJECT)
        self._manager.add_hookspecs(hookspecs)
        self._backends: dict[str, StateBackend] = {}
        self._compared: set[Resolution] = set()
        self.hook = self._manager.hook
        self._manager.register(builtin, builtin.__name__)
        self.records = list(discover() if records is None else records)
        _mark_duplicates(self.records, rules)
        for record in self.records:
            self._load(record)

    @override
    def __reduce__(self) -> tuple[Any, ...]:
        return get_registry, (self.rules,)

    def _load(self, record: PluginRecord) -> None:
        if not is_plain_name(record.name):
            where = (record.name, record.distribution, record.version, record.target)
            record.fail(Status.BROKEN, PluginLoadError(*where, _BAD_NAME))
            return
        rule = blocking_rule(record.name, self.rules)
        if rule is not None:
            record.fail(Status.BLOCKED, PluginBlockedError(record.name, rule))
        if record.status is not Status.OK:
            return
        try:
            self._register(record)
        except PluginIncompatibleError as error:
            record.fail(Status.INCOMPATIBLE, error)
        except PluginError as error:
            record.fail(Status.BROKEN, error)

    def _register(self, record: PluginRecord) -> None:
        where = (record.name, record.distribution, record.version, record.target)
        plugin = import_target(*where)
        try:
            provide = getattr(plugin, "millpond_state_backends", None)
            backends = _provided(provide) if provide else {}
            self._manager.register(plugin, record.name)
            self._manager.check_pending()
        except Exception as error:
            self._manager.unregister(name=record.name)
            reason = f"{type(error).__name__}: {error}"
            raise PluginLoadError(*where, reason) from error
        record.plugin = plugin
        self._backends.update(backends)
        if record.name in backends:
            record.capabilities = backends[record.name].capability_names()

    def backend_names(self) -> list[str]:
        """Return the names of all usable backends, sorted."""
        return sorted(self._backends)

    def resolve(self, name: str) -> Resolution:
        """Return the location of the backend's code.

        Args:
            name: the backend as a configuration names it: an entry-point name,
                ``name@distribution``, or ``module:attr``.

        Raises:
            PluginNotFoundError, PluginLoadError, PluginIncompatibleError,
            PluginBlockedError, PluginConflictError: the backend cannot be used. The message says
                how to change that.
        """
        if ":" in name:
            return Resolution(name, name)
        record = self._find(name)
        if record.error is not None:
            raise record.error
        return Resolution(record.name, record.target, record.distribution, record.version)

    def _find(self, name: str) -> PluginRecord:
        plain, _, distribution = name.partition("@")
        matches = [
            record
            for record in self.records
            if record.name == plain and distribution in ("", record.distribution)
        ]
        if not matches:
            installed = tuple(sorted({record.name for record in self.records}))
            known = KNOWN_DISTRIBUTIONS.get(plain)
            raise PluginNotFoundError(plain, installed, nearest(plain, installed), known)
        if distribution and matches[0].status is Status.DUPLICATE:
            matches[0].status, matches[0].error = Status.OK, None
            self._load(matches[0])
        return matches[0]

    def backend(self, name: str) -> StateBackend:
        """Return the backend ``name``; see :meth:`resolve` for the argument and the errors."""
        return self.load(self.resolve(name))

    def load(self, resolution: Resolution) -> StateBackend:
        """Return the backend that ``resolution`` locates; import it if necessary.

        Raises:
            PluginBlockedError: the rules of this process forbid the backend's plugin.
            PluginLoadError, PluginIncompatibleError, BackendMismatchError: the backend cannot be
                used.
        """
        rule = blocking_rule(resolution.name, self.rules) if resolution.distribution else None
        if rule is not None:
            raise PluginBlockedError(resolution.name, rule)
        if resolution not in self._compared:
            resolution.require_same()
            self._compared.add(resolution)
        if resolution.name not in self._backends:
            self._load_foreign(resolution)
        return self._backends[resolution.name]

    def _load_foreign(self, resolution: Resolution) -> None:
        where = (resolution.name, resolution.distribution, resolution.version, resolution.target)
        loaded = import_target(*where)
        provide = getattr(loaded, "millpond_state_backends", None)
        if provide is None:
            backend = loaded() if isinstance(loaded, type) else loaded
            self._backends[resolution.name] = backend
            return
        self._manager.register(loaded, resolution.name)
        backends = {backend.name: backend for backend in provide()}
        if resolution.name not in backends:
            raise PluginLoadError(*where, "it provides no backend of that name")
        self._backends.update(backends)

    def storage(
        self, uri: str | CheckpointStorage, config: Config | None = None
    ) -> CheckpointStorage:
        """Open a checkpoint storage by URI.

        Args:
            uri: the URI; a storage is returned unchanged.
            config: the configuration, with the address and the credentials of an object store.

        Raises:
            ConfigError: no plugin knows the scheme, or the storage cannot be opened.
        """
        schemes = self.gather("millpond_checkpoint_storages", config=config or Config())
        reasons = (f"{each.name!r}: {each.reason}" for each in self.records if each.reason)
        return open_storage(uri, schemes, unused=" ".join(reasons))

    def savepoint(
        self,
        place: str | PathLike[str] | CheckpointStorage | SavepointHandle,
        config: Config | None = None,
    ) -> SavepointHandle:
        """Return the handle of the savepoint or checkpoint directory at ``place``."""
        config = config or Config()
        return locate_savepoint(place, partial(self.storage, config=config), config.restore)

    def serializer(self, declared: type) -> TypeSerializer[Any] | None:
        """Return the serializer that a plugin provides for ``declared``; None if none does."""
        made = self._serializers.get(declared)
        return None if made is None else CustomSerializer.wrapping(made())

    @cached_property
    def _serializers(self) -> dict[type, Callable[[], TypeSerializer[Any]]]:
        return self.gather("millpond_serializers")

    def make_state(self, backend: KeyedStates, registered: RegisteredState) -> State:
        """Return the object by which users access a registered state, with plugins' wrappers."""
        parameters, descriptor = backend.parameters, registered.descriptor
        state: State = self.hook.millpond_create_state(
            backend=backend,
            descriptor=stamped_descriptor(descriptor, registered.times),
            namespace_serializer=registered.namespace_codec,
        )
        keys = StateKeys(backend.current, descriptor)
        attach_bulk_keys(state, keys)
        clock, config, times = parameters.clock, parameters.config, registered.times
        context = StateContext(backend, clock, config, backend.metrics, times)
        found = self.hook.millpond_wrap_state(descriptor=descriptor, context=context)
        for _, wrap in sorted(chain.from_iterable(found), key=itemgetter(0)):
            state = wrap(state)
            attach_bulk_keys(state, keys)
        return state

    def snapshot_strategies(self, backend: KeyedStateBackend) -> list[SnapshotStrategy]:
        """Return the snapshot strategies that plugins provide for a backend."""
        found = self.hook.millpond_snapshot_strategies(backend=backend)
        return [strategy for group in found for strategy in group]

    def report(
        self, config: Config, metrics: Mapping[str, float], labels: Mapping[str, str]
    ) -> None:
        """Call the configured reporters with metrics and labels; log an error of a reporter.

        Raises:
            ConfigError: no plugin provides a configured reporter.
        """
        for name, reporter in self.reporters(config).items():
            try:
                reporter(metrics, labels)
            except Exception:  # noqa: BLE001 - a reporter never fails a job
                _LOG.exception("the metric reporter %r failed", name)

    def reporters(self, config: Config) -> dict[str, Callable[..., Any]]:
        """Return the configured reporters by name.

        Raises:
            ConfigError: no plugin provides a configured reporter.
        """
        if not config.metrics.reporters:
            return {}
        known = self.gather("millpond_metric_reporters", config=config)
        for name in config.metrics.reporters:
            if name not in known:
                reason = f"expected one of {', '.join(sorted(known))}, got {name!r}"
                raise ConfigError("metrics.reporters", reason)
        return {name: known[name] for name in config.metrics.reporters}

    def gather(self, hook: str, **arguments: Any) -> dict[Any, Any]:
        """Call ``hook`` in all plugins, and merge the returned mappings into one.

        If several plugins return a key, the result has the first plugin's value.
        """
        merged: dict[Any, Any] = {}
        for mapping in getattr(self.hook, hook)(**arguments):
            merged = {**mapping, **merged}
        return merged


def _provided(provide: Callable[[], Iterable[StateBackend]]) -> dict[str, StateBackend]:
    """Return the backends that ``provide`` returns, by name.

    Raises:
        ValueError: the name of a backend cannot be used.
    """
    backends = {backend.name: backend for backend in provide()}
    for name in backends:
        if not is_plain_name(name):
            raise ValueError(f"the backend {name!r}: {_BAD_NAME}")
    return backends


def _mark_duplicates(records: list[PluginRecord], rules: PluginsConfig) -> None:
    counts = Counter(record.name for record in records if not blocking_rule(record.name, rules))
    for record in records:
        if counts[record.name] > 1:
            owners = [other.distribution for other in records if other.name == record.name]
            record.fail(Status.DUPLICATE, PluginConflictError(record.name, tuple(sorted(owners))))


@cache
def _registry_for(rules: PluginsConfig) -> PluginRegistry:
    return PluginRegistry(rules)


def get_registry(config: PluginsConfig | None = None) -> PluginRegistry:
    """Return the registry for the rules in ``config``; registries are cached in this process."""
    return _registry_for(effective_rules(config or PluginsConfig()))
