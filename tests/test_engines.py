"""Engines: how they are named in files, what is wrong with a file, and what is refused."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

import pytest

from drumbeat.composition.engine_kinds import KINDS, EngineKind
from drumbeat.composition.engine_settings import read_settings
from drumbeat.composition.engines import check_store_url
from drumbeat.composition.plane import ControlPlane
from drumbeat.core.clock import ManualClock
from drumbeat.core.engine import covers, engine_names
from drumbeat.core.errors import InvalidSettings, MissingExtra, Refused
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import Worker, WorkerId
from drumbeat.fleet.model import FleetPolicy
from drumbeat.settings import ENGINES_VARIABLE, Settings, load_settings
from drumbeat.spawn.group import EngineGroup
from drumbeat.spawn.inherited import credentials_of
from drumbeat.spawn.interface import Order
from drumbeat.spawn.local import LocalSpawner
from drumbeat.store.interface import StoreTraits
from drumbeat.store.memory import MemoryStore

HERE: Mapping[str, Any] = {"kind": "local", "price_per_hour": 0.5}
RUNPOD = {"RUNPOD_API_KEY": "k", "RUNPOD_MAX_PRICE_PER_HOUR": "2", "RUNPOD_WORKER_IMAGE": "i"}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in RUNPOD:
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def plane_on(store: str, **engines: Mapping[str, Any]) -> ControlPlane:
    """A control plane with these engines, on a store of this kind that holds nothing."""
    clock = ManualClock()
    rows = MemoryStore(clock)
    name = store.partition(":")[0]
    networked = name in ("postgresql", "redis", "snowflake")
    rows.traits = StoreTraits(name=name, shared=name != "memory", networked=networked)
    return ControlPlane(Settings(store=store, state_dir=Path("state"), engines=engines), rows, clock)


def environment_of(spawner: Any) -> Mapping[str, str]:
    """The environment that a spawner for this machine gives to a worker."""
    order = Order(pool_id=PoolId("p"), worker_id=WorkerId("w"), slot=0, group_count=1)
    found: Mapping[str, str] = spawner._environment_of(order, (order.pool_id, order.worker_id))
    return found


def write(name: str, text: str) -> Path:
    path = Path(name)
    path.write_text(text, encoding="utf-8")
    return path


class TestFiles:
    def test_an_engine_is_named_in_engines_toml(self) -> None:
        write("engines.toml", '[engines.here]\nkind = "local"\nslots = 2\n')

        assert load_settings({}).engines == {"here": {"kind": "local", "slots": 2}}

    def test_an_engine_is_named_in_the_settings_file(self) -> None:
        write("drumbeat.toml", 'store = "sqlite:///x.db"\n[engines.here]\nkind = "local"\n')

        assert load_settings({}).engines == {"here": {"kind": "local"}}

    def test_engines_of_both_files_exist(self) -> None:
        write("drumbeat.toml", '[engines.one]\nkind = "local"\n')
        write("engines.toml", '[engines.two]\nkind = "local"\n')

        assert list(load_settings({}).engines) == ["one", "two"]

    def test_engines_toml_is_beside_the_settings_file(self, here: Path) -> None:
        (here / "etc").mkdir()
        write("etc/drumbeat.toml", "")
        write("etc/engines.toml", '[engines.here]\nkind = "local"\n')

        assert list(load_settings({}, here / "etc" / "drumbeat.toml").engines) == ["here"]

    def test_a_variable_names_another_file_instead(self) -> None:
        write("engines.toml", '[engines.one]\nkind = "local"\n')
        write("other.toml", '[engines.two]\nkind = "local"\n')

        assert list(load_settings({ENGINES_VARIABLE: "other.toml"}).engines) == ["two"]

    def test_paths_begin_in_the_folder_of_their_file_or_in_the_home_folder(
        self, here: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HOME", str(here / "home"))
        for name in ("etc/key.p8", "etc/hosts", "home/key", "home/tls/ca.pem", "etc/kube.yaml"):
            (here / name).parent.mkdir(parents=True, exist_ok=True)
            (here / name).touch()
        snowflake = 'account = "a"\ndatabase = "d"\nschema = "s"\ncompute_pool = "c"\nimage = "/i"\nuser = "u"\n'
        write(
            "etc/engines.toml",
            f'[engines.cloud]\nkind = "spcs"\n{snowflake}private_key_file = "key.p8"\n'
            '[engines.far]\nkind = "ssh"\nkey_file = "~/key"\nknown_hosts = "hosts"\n[[engines.far.hosts]]\nname = "a"\n'
            '[engines.box]\nkind = "docker"\nimage = "i"\ntls_folder = "~/tls"\n'
            '[engines.k8s]\nkind = "kubernetes"\nimage = "i"\nkubeconfig = "../etc/kube.yaml"\n'
            '[engines.hpc]\nkind = "slurm"\nfolder = "shared"\nprograms = "~/bin"\n',
        )
        settings = load_settings({ENGINES_VARIABLE: "etc/engines.toml"})
        monkeypatch.chdir("/")
        named = ControlPlane(settings, MemoryStore(ManualClock()), ManualClock()).engines
        cloud, far, box, k8s, hpc = (named.get(name).settings for name in ("cloud", "far", "box", "k8s", "hpc"))

        assert (cloud.private_key_file, far.known_hosts) == (here / "etc" / "key.p8", here / "etc" / "hosts")
        assert (far.key_file, box.tls_folder) == (here / "home" / "key", here / "home" / "tls")
        assert k8s.kubeconfig.resolve() == here / "etc" / "kube.yaml"
        assert (hpc.folder, hpc.programs) == (here / "etc" / "shared", here / "home" / "bin")

    def test_without_files_there_are_none(self) -> None:
        assert load_settings({}).engines == {}

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("[engines.here", "expected TOML in engines.toml, got invalid TOML"),
            (
                '[here]\nkind = "local"',
                r"expected only tables \[engines.NAME\] in engines.toml, got 'here'; write \[engines.here\]",
            ),
            (
                '[engine.gpu]\nkind = "local"',
                r"expected only tables \[engines.NAME\] in engines.toml, got \[engine.gpu\]; write \[engines.gpu\]",
            ),
            ('[engine]\nkind = "local"', r"got \[engine\]; write \[engines.NAME\]"),
            ("engines = 3", r"expected tables \[engines.NAME\] in engines.toml, got engines = 3"),
            ("[engines]\nhere = 3", r"expected a table \[engines.here\] in engines.toml, got 3"),
            ("[engines.here]\nslots = 3", r'the kind of engine .here. in engines.toml, such as kind = "local", got none'),
            ("[engines.here]\nkind = 3", "expected the kind of engine 'here' in engines.toml, .*, got 3"),
            ('[engines."a,b"]\nkind = "local"', "expected the name of an engine, .* got 'a,b'"),
            ('[engines."-a"]\nkind = "local"', "expected the name of an engine, .* got '-a'"),
        ],
    )
    def test_a_wrong_file_says_what_is_wrong(self, text: str, said: str) -> None:
        write("engines.toml", text)

        with pytest.raises(InvalidSettings, match=said):
            load_settings({})

    def test_a_misspelt_table_in_the_settings_file_is_named(self) -> None:
        write("drumbeat.toml", '[engine.gpu]\nkind = "local"\n')

        with pytest.raises(InvalidSettings, match=r"unknown table \[engine.gpu\] in drumbeat.toml; write \[engines.gpu\]"):
            load_settings({})

    def test_an_engine_in_two_files_is_refused(self) -> None:
        write("drumbeat.toml", '[engines.here]\nkind = "local"\n')
        write("engines.toml", '[engines.here]\nkind = "local"\n')

        with pytest.raises(
            InvalidSettings, match=r"expected the engine 'here' in one file, got it in .* and in .*; remove one"
        ):
            load_settings({})

    def test_a_file_that_is_named_and_missing_is_refused(self) -> None:
        with pytest.raises(InvalidSettings, match=r"the path of an engines file in DRUMBEAT_ENGINES, got nowhere.toml"):
            load_settings({ENGINES_VARIABLE: "nowhere.toml"})


class Colour(StrEnum):
    RED = "RED"
    BLUE = "BLUE"


@dataclass(frozen=True, kw_only=True)
class Host:
    """A table in a list of tables."""

    address: str
    slots: int = 1
    disks: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Everything:
    """A settings class with a field of each type that a file can hold."""

    hosts: tuple[Host, ...]
    name: str = ""
    wait: timedelta = timedelta(seconds=1)
    price: float = 0.0
    colour: Colour | None = None
    mode: Literal["a", "b"] = "a"
    is_on: bool = False
    key_file: Path | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    token_variable: str | None = None

    def __post_init__(self) -> None:
        if self.price < 0:
            raise InvalidSettings(f"expected a price of 0 or more, got {self.price}")


ONE: Mapping[str, Any] = {"hosts": [{"address": "a"}]}


class TestSettings:
    def test_every_type_is_read(self) -> None:
        table = {
            "hosts": [{"address": "a", "slots": 4}, {"address": "b"}],
            "wait": "1.5m",
            "price": 2,
            "colour": "blue",
            "mode": "b",
            "is_on": True,
            "key_file": "/k",
            "labels": {"zone": "eu"},
            "token_variable": "T",
        }

        assert read_settings(Everything, table, "engine e") == Everything(
            hosts=(Host(address="a", slots=4), Host(address="b")),
            wait=timedelta(seconds=90),
            price=2.0,
            colour=Colour.BLUE,
            mode="b",
            is_on=True,
            key_file=Path("/k"),
            labels={"zone": "eu"},
            token_variable="T",
        )

    @pytest.mark.parametrize(
        ("text", "seconds"), [("30s", 30), ("200ms", 0.2), ("2h", 7200), ("1d", 86400), (5, 5), (0.5, 0.5)]
    )
    def test_durations_have_units_or_are_seconds(self, text: Any, seconds: float) -> None:
        assert read_settings(Everything, {**ONE, "wait": text}, "e").wait == timedelta(seconds=seconds)

    @pytest.mark.parametrize(
        ("wrong", "said"),
        [
            ({"hots": []}, "engine e has no setting 'hots'; expected some of hosts, name, wait, price"),
            ({"hosts": "a"}, "engine e: expected hosts to be a list, got 'a'"),
            ({"hosts": ["a"]}, "engine e: expected item 1 of hosts to be a table, got 'a'"),
            ({"hosts": [{"address": 1}]}, "engine e: item 1 of hosts: expected address to be a text, got 1"),
            (
                {"hosts": [{"address": "a", "slot": 1}]},
                "engine e: item 1 of hosts has no setting 'slot'; expected some of address, slots, disks",
            ),
            ({"hosts": [{"address": "a"}, {}]}, "engine e: item 2 of hosts: expected address, got none"),
            (
                {"hosts": [{"address": "a"}, {"address": "b", "disks": ["x", 2]}]},
                "engine e: item 2 of hosts: expected item 2 of disks to be a text, got 2",
            ),
            ({"name": 1}, "engine e: expected name to be a text, got 1"),
            ({"wait": "soon"}, "engine e: expected wait to be seconds, or a duration such as 30s, 10m or 2h, got 'soon'"),
            ({"wait": -1}, "expected wait to be seconds"),
            ({"price": "1"}, "engine e: expected price to be a number, got '1'"),
            ({"price": True}, "engine e: expected price to be a number, got True"),
            ({"price": float("inf")}, "engine e: expected price to be a number"),
            ({"price": -1}, "engine e: expected a price of 0 or more, got -1.0"),
            ({"colour": "green"}, "engine e: expected colour to be one of red, blue, got 'green'"),
            ({"mode": "c"}, "engine e: expected mode to be 'a' or 'b', got 'c'"),
            (
                {"key_file": "~nobody.here/k"},
                "engine e: expected key_file to be a path, got ~nobody.here/k: there is no user 'nobody.here'",
            ),
            ({"is_on": 1}, "engine e: expected is_on to be true or false, got 1"),
            ({"labels": {"zone": 1}}, "engine e: expected labels.zone to be a text, got 1"),
            ({"token": "s3cret"}, "secrets do not belong in this file; name the environment variable .* token_variable"),
        ],
    )
    def test_what_is_wrong_is_said_in_one_line(self, wrong: Mapping[str, Any], said: str) -> None:
        with pytest.raises(InvalidSettings, match=said) as caught:
            read_settings(Everything, {**ONE, **wrong}, "engine e")

        assert "s3cret" not in str(caught.value)
        assert "\n" not in str(caught.value)

    def test_a_missing_setting_is_named(self) -> None:
        with pytest.raises(InvalidSettings) as caught:
            read_settings(Everything, {}, "engine e")

        assert str(caught.value) == "engine e: expected hosts (at least one table [[engines.NAME.hosts]]), got none"


class TestNames:
    @pytest.mark.parametrize("text", ["a", "a,b", "gpu-cluster,k8s,local", "A.1_b"])
    def test_names_are_separated_by_commas(self, text: str) -> None:
        assert engine_names(text) == tuple(text.split(","))

    def test_spaces_around_names_do_not_matter(self) -> None:
        assert engine_names("a, b ,c") == ("a", "b", "c")
        assert covers("a, b", "b,a")

    @pytest.mark.parametrize("text", ["", ",", "a,", "a b", "-a", "a/b", "a,a", "x" * 64, ",".join(map(str, range(21)))])
    def test_other_texts_are_refused(self, text: str) -> None:
        with pytest.raises(InvalidSettings):
            engine_names(text)

    @pytest.mark.parametrize(
        ("engines", "provider", "expected"),
        [
            ("a", "a", True),
            ("a,b", "a", True),
            ("a,b", "b,a", True),
            ("a", "a,b", False),
            ("a", "b", False),
            ("a", None, True),
            ("", "a", True),
        ],
    )
    def test_engines_cover_those_of_a_row(self, engines: str, provider: str | None, expected: bool) -> None:
        assert covers(engines, provider) is expected


class TestNamed:
    def test_local_needs_no_naming(self) -> None:
        assert [each.name for each in plane_on("memory:").engines.list()] == ["local"]

    def test_runpod_needs_no_naming_if_a_variable_is_set(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("RUNPOD_API_KEY", "k")

        assert [each.name for each in plane_on("memory:").engines.list()] == ["local", "runpod"]

    def test_an_unknown_name_is_refused_with_the_known_ones(self) -> None:
        with pytest.raises(InvalidSettings, match=r"expected the name of an engine \(local, here\), got 'nope'"):
            plane_on("memory:", here=HERE).spawner("nope")

    def test_an_unknown_kind_is_refused_with_the_known_ones(self) -> None:
        with pytest.raises(InvalidSettings, match=r"expected the kind of engine 'x' to be one of local, .*runpod.*, got 'vax'"):
            plane_on("memory:", x={"kind": "vax"}).spawner("x")

    def test_an_unknown_kind_leaves_the_other_engines_usable(self) -> None:
        engines = plane_on("memory:", x={"kind": "vax"}, here=HERE).engines

        assert [each.name for each in engines.list()] == ["local", "here"]
        assert [(each.name, each.kind, each.problem is None) for each in engines.reports()] == [
            ("local", "local", True),
            ("here", "local", True),
            ("x", "vax", False),
        ]
        assert isinstance(engines.open("here"), LocalSpawner)
        assert not engines.knows("x")
        with pytest.raises(InvalidSettings, match="got 'vax'"):
            engines.open("here,x")

    def test_local_cannot_be_another_kind(self) -> None:
        with pytest.raises(InvalidSettings, match="expected the engine 'local' to be of kind 'local', got 'runpod'"):
            plane_on("memory:", local={"kind": "runpod"}).spawner("local")

    def test_the_settings_of_local_can_be_changed(self) -> None:
        plane = plane_on("memory:", local={"kind": "local", "price_per_hour": 2})

        assert plane.spawner("local").traits.price_per_hour == plane.local_spawner().traits.price_per_hour == 2.0

    def test_two_local_engines_keep_their_workers_apart(self) -> None:
        plane = plane_on("sqlite:////x.db", here=HERE)
        pool, worker = PoolId("p"), WorkerId("w")
        one, two = plane.spawner("local"), plane.spawner("here")

        assert isinstance(one, LocalSpawner)
        assert isinstance(two, LocalSpawner)
        assert one.log_path(pool, worker) != two.log_path(pool, worker)
        assert (one.traits.name, two.traits.name, two.traits.price_per_hour) == ("local", "here", 0.5)

    def test_a_second_runpod_engine_has_pods_of_its_own(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, value in RUNPOD.items():
            monkeypatch.setenv(name, value)
        plane = plane_on("postgresql://db/x", gpu={"kind": "runpod", "max_price_per_hour": 9, "clouds": ["community"]})

        usual, other = plane.spawner("runpod"), plane.spawner("gpu")

        assert (usual.traits.name, usual.traits.price_per_hour) == ("runpod", 2.0)
        assert (other.traits.name, other.traits.price_per_hour) == ("gpu", 9.0)
        assert usual.traits.asked_with != other.traits.asked_with, "their pods have different prefixes"

    def test_the_key_of_runpod_goes_only_to_https(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, value in RUNPOD.items():
            monkeypatch.setenv(name, value)

        with pytest.raises(InvalidSettings, match="expected an https address"):
            plane_on("postgresql://db/x", gpu={"kind": "runpod", "base_url": "http://elsewhere"}).spawner("gpu")

    def test_several_engines_are_a_group(self) -> None:
        group = plane_on("memory:", here=HERE).spawner("here,local")

        assert isinstance(group, EngineGroup)
        assert group.traits.name == "here,local"

    def test_a_kind_without_its_extra_names_the_command(self, monkeypatch: pytest.MonkeyPatch) -> None:
        kind = replace(KINDS["runpod"], module="spawn.nowhere")

        with pytest.raises(MissingExtra, match=r"run: pip install 'drumbeat\[runpod\]'"):
            kind.load()
        assert kind.problem == "the engine kind runpod needs an optional dependency; run: pip install 'drumbeat[runpod]'"

    def test_a_kind_without_its_program_names_it(self) -> None:
        kind = replace(KINDS["local"], programs=("no-such-program",))

        assert kind.problem is not None
        assert "expected the program no-such-program in PATH" in kind.problem

    def test_a_report_says_why_an_engine_cannot_be_used(self) -> None:
        engines = plane_on("memory:", here={"kind": "local", "slots": 0}).engines

        assert engines.report(engines.get("here")).problem == (
            "engine here (kind local): expected slots to be 1 or more, got 0"
        )

    def test_a_machine_that_lacks_an_engine_does_not_know_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        engines = plane_on("memory:", here=HERE).engines

        assert engines.knows("here,local")
        assert not engines.knows("here,elsewhere")
        assert not engines.knows("runpod"), "its API key is not set"


class TestReach:
    @pytest.mark.parametrize("names", ["runpod", "local,runpod"])
    def test_a_store_in_a_file_is_refused_for_workers_elsewhere(self, names: str) -> None:
        plane = plane_on("sqlite:////data/x.db")

        with pytest.raises(InvalidSettings, match="got sqlite, which only this machine can reach") as caught:
            plane.spawner(names)

        assert "drumbeat store copy sqlite:////data/x.db postgresql://USER@HOST/DATABASE" in str(caught.value)
        assert "export DRUMBEAT_STORE=postgresql://USER@HOST/DATABASE" in str(caught.value)

    def test_a_store_in_a_file_is_refused_before_it_is_opened(self) -> None:
        settings = Settings(store="sqlite:////data/x.db", engines={"gpu": {"kind": "ssh"}, "here": HERE})

        for names in ("gpu", "here, gpu", "runpod"):
            with pytest.raises(InvalidSettings, match="got sqlite, which only this machine can reach"):
                check_store_url(settings, names)
        for names in ("here,local", "unknown"):
            check_store_url(settings, names)
        check_store_url(replace(settings, store="postgresql://db/x"), "gpu")

    def test_a_store_in_memory_is_refused_for_workers_elsewhere(self) -> None:
        with pytest.raises(InvalidSettings, match="got memory, which only this machine can reach; use PostgreSQL or Redis"):
            plane_on("memory:").engines.check_reach("runpod")

    def test_a_store_in_a_file_is_enough_for_workers_here(self) -> None:
        plane_on("sqlite:////data/x.db", here=HERE).engines.check_reach("here,local")

    @pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]", ""])
    def test_a_loopback_url_is_a_warning(self, host: str) -> None:
        engines = plane_on(f"postgresql://u:s3cret@{host}/x" if host else "postgresql:///x", here=HERE).engines
        engines.check_reach("runpod")

        warning = engines.reach_warning("here,runpod")

        assert warning is not None
        assert warning.startswith("the store's URL names ")
        assert "s3cret" not in warning
        assert engines.reach_warning("here") is None

    def test_another_host_is_no_warning(self) -> None:
        assert plane_on("postgresql://db.example/x").engines.reach_warning("runpod") is None


class TestUse:
    async def test_a_pool_keeps_its_engine(self) -> None:
        plane = plane_on("memory:", here=HERE)

        made = await plane.pool("p").create(engine="here,local")
        changed = await plane.pool("p").update(engine="here")

        assert (made.engine, changed.engine) == ("here,local", "here")
        assert (await plane.pool("q").create()).engine == "local"

    @pytest.mark.parametrize("engine", ["nope", "here,nope", "a,,b"])
    async def test_a_pool_of_an_unknown_engine_is_not_made(self, engine: str) -> None:
        plane = plane_on("memory:", here=HERE)

        with pytest.raises(InvalidSettings):
            await plane.pool("p").create(engine=engine)

        assert await plane.store.pools.list() == []

    async def test_a_pool_whose_workers_may_run_elsewhere_keeps_its_engine(self) -> None:
        plane = plane_on("memory:", here=HERE)
        pool = plane.pool("p")
        await pool.create(engine="here")
        await plane.store.workers.add([Worker(pool_id=PoolId("p"), worker_id=WorkerId("w"), slot=0, provider="here")])

        with pytest.raises(
            Refused, match=r"cannot change the engine of p from here to local while workers may still run \(w\)"
        ):
            await pool.update(engine="local")

        assert (await pool.update(engine="here,local")).engine == "here,local", "the group can end it"

    async def test_a_fleets_pool_changes_its_engine_as_a_fleet(self) -> None:
        plane = plane_on("memory:", here=HERE)
        await plane.fleets.configure("p", {"engine": "here"})

        with pytest.raises(Refused, match="drumbeat fleet create p --engine"):
            await plane.pool("p").update(engine="local")

    async def test_a_fleet_takes_over_the_engine_of_its_pool(self) -> None:
        plane = plane_on("memory:", here=HERE)
        await plane.pool("p").create(engine="here")

        assert (await plane.fleets.configure("p", {})).pool.engine == "here"
        assert (await plane.fleets.configure("p", {"engine": "local"})).pool.engine == "local"

    async def test_a_spending_limit_needs_an_engine_with_a_price(self) -> None:
        plane = plane_on("memory:", here=HERE, free={"kind": "local"})

        with pytest.raises(InvalidSettings, match="a worker of the engine free costs nothing"):
            await plane.fleets.create("f", FleetPolicy(provider="free", max_per_day=1))
        await plane.fleets.create("g", FleetPolicy(provider="free,here", max_per_day=1))

    async def test_a_fleet_may_add_an_engine_while_workers_run(self) -> None:
        plane = plane_on("memory:", here=HERE)
        await plane.fleets.configure("f", {"policy": "fixed"})
        await plane.store.workers.add([Worker(pool_id=PoolId("f"), worker_id=WorkerId("w"), slot=0, provider="local")])

        assert (await plane.fleets.configure("f", {"engine": "here,local"})).pool.engine == "here,local"
        with pytest.raises(
            InvalidSettings, match="cannot change the engine of f from local to here while workers may still run"
        ):
            await plane.fleets.configure("f", {"engine": "here"})

    async def test_a_benchmark_with_an_unknown_engine_is_refused(self) -> None:
        bench = plane_on("memory:", here=HERE).bench()
        document = await bench.document('{"name": "x", "scaling": {"engine": "nope"}}', is_text=True)

        with pytest.raises(InvalidSettings, match="got 'nope'"):
            await bench.plan(document)

    async def test_secrets_of_a_benchmark_go_to_workers_elsewhere(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, value in {**RUNPOD, "DRUMBEAT_TARGET_PASSWORD": "pw", "DRUMBEAT_KEY": "key"}.items():
            monkeypatch.setenv(name, value)
        plane = plane_on("postgresql://db/x")

        spawner = plane._bench_spawner("runpod")

        environment = vars(spawner)["_environment"]
        assert (environment["DRUMBEAT_TARGET_PASSWORD"], environment["DRUMBEAT_KEY"]) == ("pw", "key")
        assert environment["DRUMBEAT_STORE"] == "postgresql://db/x"
        assert "DRUMBEAT_TARGET_PASSWORD" not in vars(plane.spawner("runpod"))["_environment"]

    def test_workers_on_this_machine_do_not_get_the_credentials_of_engines(self, monkeypatch: pytest.MonkeyPatch) -> None:
        sign_in = {"kind": "spcs", "password_variable": "SNOWFLAKE_PASSWORD", "key_variable": "SPCS_KEY"}
        plane = plane_on("sqlite:///x.db", cloud=sign_in, rays={"kind": "ray"}, own={"kind": "ray", "token_variable": "OWN"})
        for name in ("RUNPOD_API_KEY", "SNOWFLAKE_PASSWORD", "SPCS_KEY", "RAY_AUTH_TOKEN", "OWN", "OTHER"):
            monkeypatch.setenv(name, "x")

        found = environment_of(plane.local_spawner())
        assert found["OTHER"] == "x"
        assert found.keys().isdisjoint({"RUNPOD_API_KEY", "SNOWFLAKE_PASSWORD", "SPCS_KEY", "RAY_AUTH_TOKEN", "OWN"})
        bench = environment_of(plane._bench_spawner("local"))
        assert bench["SNOWFLAKE_PASSWORD"] == "x", "the workers of a benchmark sign in at the Snowflake under test"
        assert "SPCS_KEY" not in bench

    def test_workers_of_a_benchmark_on_this_machine_sign_in_at_snowflake_whatever_their_engine_is_called(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sign_in = {"kind": "ray", "token_variable": "SNOWFLAKE_PASSWORD"}
        plane = plane_on("postgresql://u@db/x", cloud=sign_in, own={"kind": "local"})
        for name, value in {**RUNPOD, "SNOWFLAKE_PASSWORD": "x"}.items():
            monkeypatch.setenv(name, value)

        assert environment_of(plane._bench_spawner("own"))["SNOWFLAKE_PASSWORD"] == "x"
        group: Any = plane._bench_spawner("own,runpod")
        own, runpod = (member.spawner for member in vars(group)["_members"])
        assert environment_of(own)["SNOWFLAKE_PASSWORD"] == "x"
        assert "SNOWFLAKE_PASSWORD" not in vars(runpod)["_environment"]
        assert "SNOWFLAKE_PASSWORD" not in environment_of(plane.spawner("own"))

    def test_a_worker_without_the_credentials_of_an_engine_does_not_check_its_pools(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        plane = plane_on("sqlite:///x.db", rays={"kind": "ray"})
        monkeypatch.setenv("RAY_AUTH_TOKEN", "x")
        assert plane.engines.knows("local,rays")

        for name, value in environment_of(plane.local_spawner()).items():
            monkeypatch.setenv(name, value)
        monkeypatch.delenv("RAY_AUTH_TOKEN")
        assert not plane.engines.knows("local,rays")
        assert plane.engines.knows("local")
        monkeypatch.setenv("RAY_AUTH_TOKEN", "y")
        assert plane.engines.knows("local,rays")

    @pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: str(kind.name))
    def test_the_usual_variables_of_a_kind_are_known_as_credentials(self, kind: EngineKind) -> None:
        fields = dataclasses.fields(kind.settings_class)
        usual = {each.default for each in fields if each.name.endswith("_variable") and each.default}

        assert credentials_of(kind.name, {}) == usual | {*kind.variables}

    @pytest.mark.parametrize("store", ["redis://db/0", "snowflake://me@account/db/s"])
    async def test_the_password_of_the_store_goes_to_workers_elsewhere(self, store: str) -> None:
        hosts = [{"name": "a", "address": "a", "user": "u", "slots": 1}]
        plane = plane_on(store, far={"kind": "ssh", "hosts": hosts, "python": "python3"})
        plane.settings = replace(plane.settings, store_password="pw")

        async with plane.spawner("far") as spawner:
            environment = vars(spawner)["_environment"]

        assert (environment["DRUMBEAT_STORE"], environment["DRUMBEAT_STORE_PASSWORD"]) == (store, "pw")
