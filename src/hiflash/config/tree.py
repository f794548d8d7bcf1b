"""The configuration: a frozen tree with the paper's defaults, from TOML, the command line or Python.

A method is a recipe of settings (`methods.recipes`), and a dataset brings a few of its own, as the files of
a federation do. The user's settings win over them. Every error names the key, its value, the origin of the
value and the allowed values.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, PrivateAttr, ValidationError, model_validator

from hiflash.config.applicability import out_of_place
from hiflash.config.files import brought_by_files, content_digest, misfits, with_absolute_files
from hiflash.config.keys import OneOf, Seconds, Section, allowed, as_tuple, setting
from hiflash.config.method_sections import (
    AttackSection,
    ClientSection,
    CloudSection,
    DpSection,
    EdgeSection,
    FederationSection,
)
from hiflash.config.parts import add_declared_keys
from hiflash.config.rules import broken_rules
from hiflash.config.run_sections import (
    CostSection,
    DataSection,
    EvaluateSection,
    MobilitySection,
    ModelSection,
    PrivacySection,
    RaySection,
    ResourcesSection,
    ServeSection,
    StopSection,
    WanSection,
)
from hiflash.config.settings import explain, flatten, merged, nest, read_settings
from hiflash.errors import ConfigError
from hiflash.methods.kinds import KINDS
from hiflash.methods.plugins import load_plugins
from hiflash.methods.recipes import METHODS
from hiflash.methods.registry import version

__all__ = ["Config", "describe_keys", "inapplicable"]

FILES = "federation.files"
LATER = ("evaluate.validation", "privacy.", "dp.", "edge.secure")
"""Groups of keys that came later, by how they begin."""
BRINGING = ("method", "data.name", FILES)
"""Keys that bring settings of other keys with them."""


class Config(Section):
    """Everything that decides a run. Give sections as dicts or keys with dots.

    >>> Config(method="fedavg", **{"client.lr": 0.05}).client.lr
    0.05
    """

    method: Annotated[str, OneOf(METHODS)] = setting("hifl", "which recipe runs")
    seed: Annotated[int, Field(ge=0, le=2**63 - 1)] = setting(0, "names every random stream")
    workers: Annotated[int, Field(ge=0, le=1024)] = setting(0, "threads; 0 is one per core")
    device: Annotated[str, Field(pattern=r"^(auto|cpu|mps|cuda(:\d+)?)$")] = setting(
        "auto", "where training runs", allowed='"auto", "cpu", "mps", "cuda" or "cuda:N"'
    )
    trainer: Literal["auto", "native", "torch", "stacked", "none"] = setting(
        "auto",
        "what runs client tasks; auto is native or else torch, stacked is for GPUs, none trains nothing",
    )
    executor: Literal["local", "ray"] = setting(
        "local", "what runs the workers: this process, or a Ray cluster"
    )
    checkpoint_s: Seconds = setting(20.0, "wall seconds between two checkpoints")
    plugins: Annotated[tuple[str, ...], BeforeValidator(as_tuple)] = setting(
        (), "modules with parts of your own (docs/plugins.md)", allowed="a list of modules or .py files"
    )
    federation: FederationSection = Field(default_factory=FederationSection)
    client: ClientSection = Field(default_factory=ClientSection)
    edge: EdgeSection = Field(default_factory=EdgeSection)
    cloud: CloudSection = Field(default_factory=CloudSection)
    attack: AttackSection = Field(default_factory=AttackSection)
    dp: DpSection = Field(default_factory=DpSection)
    resources: ResourcesSection = Field(default_factory=ResourcesSection)
    wan: WanSection = Field(default_factory=WanSection)
    mobility: MobilitySection = Field(default_factory=MobilitySection)
    evaluate: EvaluateSection = Field(default_factory=EvaluateSection)
    stop: StopSection = Field(default_factory=StopSection)
    data: DataSection = Field(default_factory=DataSection)
    model: ModelSection = Field(default_factory=ModelSection)
    cost: CostSection = Field(default_factory=CostSection)
    privacy: PrivacySection = Field(default_factory=PrivacySection)
    ray: RaySection = Field(default_factory=RaySection)
    serve: ServeSection = Field(default_factory=ServeSection)

    _given: dict[str, Any] = PrivateAttr(default_factory=dict)

    def __init__(self, _sources: Mapping[str, str] | None = None, **settings: Any) -> None:
        settings = merged(settings)
        _update_keys()
        try:
            super().__init__(**settings)
        except ValidationError as error:
            raise ConfigError(_explain(error, _sources or {})) from None
        self._given = with_absolute_files(flatten(settings))

    @classmethod
    def load(cls, path: Path | str | None = None, overrides: Mapping[str, Any] | None = None) -> Self:
        """Return the configuration of a TOML file with dotted overrides on top."""
        return cls._layered(read_settings(path), overrides or {}, str(path))

    def with_settings(self, overrides: Mapping[str, Any]) -> Self:
        """Return this configuration with other settings on top; another method brings its own recipe."""
        return self._layered(self._given, overrides, "the configuration") if overrides else self

    def with_random_thresholds(self) -> Self:
        """Return this configuration with random thresholds, without the keys of its own threshold."""
        return self.with_choices({"cloud.threshold": "random"})

    def with_choices(self, choices: Mapping[str, Any]) -> Self:
        """Return this configuration with other choices, without the keys that have no effect beside them."""
        settings = {**flatten(self.model_dump(mode="json")), **choices}
        given = {key: value for key, value in self._given.items() if not out_of_place(key, settings)}
        return type(self)(**nest({**given, **choices}))

    @classmethod
    def _layered(cls, below: Mapping[str, Any], above: Mapping[str, Any], where: str) -> Self:
        below, above = with_absolute_files(below), with_absolute_files(flatten(above))
        switched = any(above.get(name, below.get(name)) != below.get(name) for name in BRINGING)
        if switched and below:
            # Values that the old method, dataset or files implied were not the user's choice: drop them.
            usual = _usual(below)
            below = {k: v for k, v in below.items() if k in BRINGING or usual.get(k) != v}
        sources = {key: where for key in below if key not in above}
        return cls(_sources=sources if below else {}, **nest(merged(below, above)))

    @model_validator(mode="before")
    @classmethod
    def _apply_recipe(cls, raw: Any) -> Any:
        if not isinstance(raw, dict):
            return raw
        given = with_absolute_files(flatten(raw))
        settings = {**_usual(given), **given}
        problems = [f"{key} {reason}" for key in given if (reason := out_of_place(key, settings))]
        if problems and cls._sections_are_valid(nest(settings)):  # else what is wrong with them comes first
            raise ValueError("\n".join(problems))
        return nest(settings)

    @classmethod
    def _sections_are_valid(cls, nested: Mapping[str, Any]) -> bool:
        for name, field in cls.model_fields.items():
            section = field.annotation
            if isinstance(section, type) and issubclass(section, Section) and name in nested:
                try:
                    section.model_validate(nested[name])
                except ValidationError:
                    return False
        return True

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if problems := [*broken_rules(self), *misfits(self)]:
            raise ValueError("\n".join(problems))
        return self

    @property
    def units(self) -> int:
        """Return the number of peers of the cloud: edges, or clients in a flat method."""
        return self.federation.clients if self.federation.flat else self.federation.edges

    @property
    def judged_by_accuracy(self) -> bool:
        """Return whether the target is an accuracy on classes, as far as the settings say."""
        return _judged_by_accuracy(self.data.task, self.stop.metric)

    def settings(self) -> dict[str, Any]:
        """Return every key that applies to this method, with dots, in the order of the documentation."""
        flat = flatten(self.model_dump(mode="json"))
        return {key: value for key, value in flat.items() if not out_of_place(key, flat)}

    def to_toml(self) -> str:
        """Return the configuration as a TOML file that gives the same run."""
        lines, section = [], ""
        for key, value in self.settings().items():
            *head, name = key.split(".")
            if head and head[0] != section:
                section = head[0]
                lines += ["", f"[{section}]"]
            # No \u surrogate pairs as in JSON: TOML has none. Besides, TOML forbids only a raw DEL.
            text = json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
            lines.append(f"{name} = {text}")
        return "\n".join(lines) + "\n"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Config) and self.settings() == other.settings()

    def __hash__(self) -> int:
        return hash(self.digest())

    def decisive(self) -> dict[str, Any]:
        """Return the settings that decide the results: not workers, devices, checkpoints or deployment."""
        free = ("workers", "device", "executor", "ray.address", "checkpoint_s", "plugins", "data.dir", FILES)
        settings, usual = self.settings(), _defaults()
        changed = [key for key, value in settings.items() if value != usual[key]]
        # Runs from before a group of keys keep their digest: at its defaults it changes nothing.
        unused = tuple(group for group in LATER if not any(key.startswith(group) for key in changed))
        decisive = {
            key: value
            for key, value in settings.items()
            if key not in free and not key.startswith(("serve.", *unused))
        }
        if self.federation.files:  # what the files say decides, not where they are
            decisive[FILES] = content_digest(self.federation.files)
        if "client.function" in decisive:  # its file may lie in another folder
            decisive["client.function"] = Path(decisive["client.function"]).name
        return decisive

    def digest(self) -> str:
        """Return a short hash of the decisive settings."""
        return hashlib.sha256(json.dumps(self.decisive(), sort_keys=True).encode()).hexdigest()[:12]


def inapplicable(method: str, given: Mapping[str, Any]) -> set[str]:
    """Return the keys without effect in a method with these settings."""
    settings = {**_defaults(), **METHODS[method].settings, **given, "method": method}
    no_edges = ("edge.edge_rounds", "edge.redraw", "edge.clients_per_round")
    out = {key for key in settings if out_of_place(key, settings)}
    return out | set(no_edges if settings["federation.flat"] else ())


def _usual(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the defaults, with the settings of the given dataset, method and files on top."""
    method, dataset = given.get("method", "hifl"), given.get("data.name", "mnist5k")
    recipe = METHODS[method].settings if isinstance(method, str) and method in METHODS else {}
    named = KINDS["dataset"].parts.get(dataset) if isinstance(dataset, str) else None
    brought = brought_by_files(given, recipe)
    own = named.settings if named else {}
    usual = {**_defaults(), **own, **recipe, **brought}
    return {**usual, "stop.target": _usual_target(usual, own, given)}


def _usual_target(usual: Mapping[str, Any], own: Mapping[str, Any], given: Mapping[str, Any]) -> Any:
    """Return the default target: the dataset's for its own metric, 90 % for other accuracies on classes."""
    asked = {key: given.get(key, usual[key]) for key in ("data.task", "stop.metric")}
    if "stop.target" in own and all(asked[key] == usual[key] for key in asked):
        return usual["stop.target"]
    return _defaults()["stop.target"] if _judged_by_accuracy(*asked.values()) else "none"


def _judged_by_accuracy(task: str, metric: str) -> bool:
    return task in ("auto", "classification") and metric in ("auto", "accuracy")


def _defaults() -> dict[str, Any]:
    return _defaults_of(version())


@lru_cache(maxsize=1)
def _defaults_of(version: int) -> dict[str, Any]:
    return {key: default for key, _, default, _ in describe_keys()}


def describe_keys() -> Iterator[tuple[str, str, Any, str]]:
    """Yield key, allowed values, default and meaning of every setting."""
    load_plugins()
    _update_keys()
    sections = _sections()
    for name, info in Config.model_fields.items():
        if name in sections:
            for sub, sub_info in sections[name].model_fields.items():
                yield f"{name}.{sub}", *_about(sub_info)
        else:
            yield name, *_about(info)


def _update_keys() -> None:
    """Give the configuration the keys that parts declare, if the parts have changed."""
    _updated(version())


@lru_cache(maxsize=1)
def _updated(version: int) -> None:
    changed = add_declared_keys(_sections())
    outer: list[type[Section]] = [Config] if changed else []
    for outdated in changed + outer:
        if outdated.__pydantic_complete__:  # others are built at their first use
            outdated.model_rebuild(force=True)


def _sections() -> dict[str, type[Section]]:
    fields = Config.model_fields.items()
    kinds = {name: info.annotation for name, info in fields}
    return {n: kind for n, kind in kinds.items() if isinstance(kind, type) and issubclass(kind, Section)}


def _about(info: Any) -> tuple[str, Any, str]:
    default = list(info.default) if isinstance(info.default, tuple) else info.default
    return allowed(info), default, info.description


def _explain(error: ValidationError, sources: Mapping[str, str]) -> list[str]:
    known = {key: (allowed, default) for key, allowed, default, _ in describe_keys()}
    return explain(error, known, sources)


_update_keys()
