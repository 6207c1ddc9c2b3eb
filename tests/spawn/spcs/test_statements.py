"""The statements and specifications that are sent are those that Snowflake documents, and the simulator takes no others."""

import random
from typing import Any

import pytest
import yaml
from hypothesis import given, strategies as st
from snowflake.connector import errors

from drumbeat.core.errors import SpawnFailed
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import WorkerId
from drumbeat.spawn.interface import Order
from drumbeat.spawn.spcs.specification import specification, yaml as written
from drumbeat.spawn.spcs.statements import (
    Identifier,
    Statements,
    comment,
    literal,
    read_comment,
    service_name,
    start_number,
    worker_prefix,
)
from spawn.spcs.account import SpcsAccount
from spawn.spcs.conftest import P, W, order, settings_of
from spawn.spcs.parser import SyntaxRefused, parse
from spawn.spcs.published import SpecificationRefused, read_specification

ODD = st.text(alphabet="aA-_/. éé工\u0301\n\0'\"\\$%", max_size=12) | st.text(max_size=100)
STATEMENTS = Statements(Identifier("WORK"), Identifier("Jobs"))
SPECIFICATION = 'spec:\n  containers:\n  - name: worker\n    image: "/a/b/c:1"\n'
START = (
    "IN COMPUTE POOL p",
    f"FROM SPECIFICATION $${SPECIFICATION}$$",
    "NAME = WORK.JOBS.X",
    "ASYNC = TRUE",
    "REPLICAS = 1",
    "QUERY_WAREHOUSE = w",
    "COMMENT = 'c'",
    "EXTERNAL_ACCESS_INTEGRATIONS = (a, b)",
)


def test_a_whole_start_is_in_the_documented_order() -> None:
    text = STATEMENTS.execute(
        "DRUMBEAT_X_0",
        compute_pool=Identifier("Fast pool"),
        specification=SPECIFICATION,
        comment="it's a \\ comment",
        warehouse=Identifier("LOAD"),
        external_access=[Identifier("STORE ACCESS"), Identifier("B")],
    )

    assert text == (
        'EXECUTE JOB SERVICE\nIN COMPUTE POOL "Fast pool"\n'
        f"FROM SPECIFICATION $$\n{SPECIFICATION}$$\n"
        'NAME = "WORK"."Jobs".DRUMBEAT_X_0\nASYNC = TRUE\nQUERY_WAREHOUSE = "LOAD"\n'
        "COMMENT = 'it''s a \\\\ comment'\n"
        'EXTERNAL_ACCESS_INTEGRATIONS = ("STORE ACCESS", "B")'
    )
    read = parse(text)
    assert (read.name, read.compute_pool, read.comment) == (("WORK", "Jobs", "DRUMBEAT_X_0"), "Fast pool", "it's a \\ comment")
    assert (read.is_async, read.warehouse, read.integrations) == (True, "LOAD", ["STORE ACCESS", "B"])


def test_the_simulator_refuses_every_other_order_of_parameters() -> None:
    assert parse("EXECUTE JOB SERVICE " + " ".join(START)).replicas == 1
    chance = random.Random(4)
    for _ in range(60):
        mixed = chance.sample(START, len(START))
        if tuple(mixed) != START:
            with pytest.raises(SyntaxRefused):
                parse("EXECUTE JOB SERVICE " + " ".join(mixed))


@pytest.mark.parametrize(
    "text",
    [
        "EXECUTE JOB SERVICE IN COMPUTE POOL p NAME = a.b.c",
        "EXECUTE JOB SERVICE IN COMPUTE POOL p FROM SPECIFICATION $$x$$ NAME = a.b.c TIMEOUT = 3",
        'EXECUTE JOB SERVICE IN COMPUTE POOL p FROM SPECIFICATION $$x$$ NAME = a.b."c"',
        "EXECUTE JOB SERVICE IN COMPUTE POOL p FROM SPECIFICATION $$x$$ NAME = c",
        "EXECUTE JOB SERVICE IN COMPUTE POOL p FROM SPECIFICATION $$x$$ NAME = a.b.c ASYNC = 1",
        "SHOW JOB SERVICES IN SCHEMA a.b LIKE 'x'",
        "DROP SERVICE a.b.c; DROP SERVICE a.b.d",
        "DROP SERVICE a.b.c CASCADE",
        "DESCRIBE SERVICE",
        "SELECT 1",
        "",
        f"DROP SERVICE a.b.{'X' * 64}",
    ],
)
def test_the_simulator_refuses_what_snowflake_does_not_take(text: str) -> None:
    with pytest.raises(SyntaxRefused):
        parse(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("spec: [", "not YAML"),
        ("spec:\n  containers: []", "from 1 to 20"),
        ("containers: []", "unknown option 'containers'"),
        (f"{SPECIFICATION}    comand: [x]\n", "unknown option 'comand'"),
        (f"{SPECIFICATION}    env: {{A: 1}}\n", "expected texts"),
        (f"{SPECIFICATION}    command: x\n", "expected a list"),
        (f"{SPECIFICATION}    resources: {{requests: {{memory: lots}}}}\n", "invalid value 'lots'"),
        (
            f"{SPECIFICATION}    secrets: [{{snowflakeSecret: {{objectName: a}}, envVarName: X}}]\n",
            "envVarName with secretKeyRef",
        ),
        ('spec:\n  containers:\n  - name: Worker\n    image: "/a"\n', "invalid value 'Worker'"),
        ('spec:\n  containers:\n  - name: worker\n    image: "a"\n', "expected /db/schema"),
        (f"{SPECIFICATION}  logExporters: {{eventTableConfig: {{logLevel: LOUD}}}}\n", "expected one of INFO"),
    ],
)
def test_the_simulator_refuses_a_specification_with_other_fields(text: str, said: str) -> None:
    with pytest.raises(SpecificationRefused, match=said):
        read_specification(text)


def test_the_simulator_answers_with_errors_of_the_connector(account: SpcsAccount) -> None:
    with pytest.raises(errors.ProgrammingError) as wrong:
        account.execute("EXECUTE JOB SERVICE NAME = x")
    with pytest.raises(errors.ProgrammingError) as missing:
        account.execute('DROP SERVICE "WORK"."Jobs".X')

    assert (wrong.value.errno, missing.value.errno) == (1003, 2003)
    assert len(account.refusals) == 1
    account.refusals.clear()


# Names


@given(ODD, ODD, ODD)
def test_a_services_name_is_plain_and_short_and_known_again(scope: str, pool: str, worker: str) -> None:
    name = (PoolId(pool), WorkerId(worker))
    made = service_name(scope, name, 12)

    assert made.isascii()
    assert made.replace("_", "A").isalnum()
    assert made == made.upper()
    assert len(made) <= 63
    assert start_number(scope, name, made) == 12
    assert parse(STATEMENTS.describe(made)).name[2] == made


@given(st.lists(st.tuples(ODD, ODD), min_size=2, max_size=6, unique=True))
def test_no_two_workers_have_the_same_name(names: list[tuple[str, str]]) -> None:
    made = {worker_prefix("s", (PoolId(pool), WorkerId(worker))) for pool, worker in names}

    assert len(made) == len(names)


@given(ODD, ODD)
def test_a_comment_tells_pool_and_worker_exactly(pool: str, worker: str) -> None:
    name = (PoolId(pool), WorkerId(worker))
    text = f"EXECUTE JOB SERVICE IN COMPUTE POOL p FROM SPECIFICATION $$$$ COMMENT = {literal(comment(name, 't'))}"

    assert read_comment(parse(text).comment) == (name, "t")


@pytest.mark.parametrize("text", [None, "", "by hand", "{}", "[]", '{"pool": "p", "worker": "w"}', "3"])
def test_other_comments_are_not_drumbeats(text: str | None) -> None:
    assert read_comment(text) is None


# Specifications


def spec_of(made: Order, **changed: Any) -> dict[str, Any]:
    text = specification(made, settings_of(**changed), {}, {"DRUMBEAT_SPCS_KEY": "k" * 16})
    assert "$" not in text
    assert text.isascii()
    [container] = read_specification(text)["containers"]
    return dict(container)


def test_a_small_specification_is_readable() -> None:
    made = Order(pool_id=P, worker_id=W, slot=2, group_count=5)
    text = specification(made, settings_of(secrets={}), {}, {})

    assert text.splitlines() == [
        '"spec":',
        '  "containers":',
        '  - "name": "worker"',
        '    "image": "/work/jobs/images/drumbeat:1"',
        '    "command":',
        *(f'    - "{word}"' for word in made.command_line(["drumbeat", "worker"])),
        '    "env":',
        '      "DRUMBEAT_STATE_DIR": "/tmp/drumbeat"',
        '      "DRUMBEAT_POOL_ID": "p"',
        '      "DRUMBEAT_WORKER_ID": "w"',
    ]


def test_resources_and_secrets_are_in_the_specification() -> None:
    container = spec_of(
        Order(pool_id=P, worker_id=W, slot=0, group_count=1), cpu="0.5", cpu_limit="2", memory="1Gi", gpus=1, log_level="INFO"
    )

    assert container["resources"] == {
        "requests": {"memory": "1Gi", "cpu": "0.5", "nvidia.com/gpu": 1},
        "limits": {"memory": "1Gi", "cpu": "2", "nvidia.com/gpu": 1},
    }
    assert container["secrets"] == [
        {
            "snowflakeSecret": {"objectName": 'WORK."Jobs".STORE_URL'},
            "secretKeyRef": "secret_string",
            "envVarName": "DRUMBEAT_STORE",
        }
    ]


def test_a_command_with_dollar_signs_is_packed() -> None:
    container = spec_of(order())

    assert container["command"][:3] == ["python3", "-I", "-c"]
    assert "DRUMBEAT_TASK" in container["env"]
    assert [each["envVarName"] for each in container["secrets"]] == ["DRUMBEAT_STORE"], "there is nothing to decrypt"


def test_an_order_that_is_too_long_is_refused() -> None:
    with pytest.raises(SpawnFailed, match="worker w of p: expected a command and environment of at most 90,000 bytes"):
        spec_of(order(LONG="x" * 120_000))


@given(
    st.dictionaries(
        st.text(min_size=1, max_size=8), st.text(max_size=20) | st.lists(st.text(max_size=8), min_size=1), min_size=1
    )
)
def test_yaml_is_read_as_it_was_meant(table: dict[str, Any]) -> None:
    text = written(table)

    assert yaml.safe_load(text) == table
    assert text.isascii()
    assert "$" not in text
