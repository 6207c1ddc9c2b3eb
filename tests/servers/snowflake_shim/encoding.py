"""Answers as the connector reads them: JSON around Arrow for queries, plain JSON for row counts."""

import uuid
from base64 import b64encode
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from fakesnow.arrow import to_ipc, to_sf

from servers.snowflake_shim.failures import Refusal
from servers.snowflake_shim.session import Answer, Session

_DML_TYPES = (0x3100, 0x3200, 0x3300, 0x3400)
_INSERT = 0x3100


def failure(refusal: Refusal, query_id: str | None) -> dict[str, Any]:
    code = f"{refusal.number:06d}"
    data = {"errorCode": code, "sqlState": refusal.sqlstate, "queryId": query_id or str(uuid.uuid4()), "internalError": False}
    return {"data": data, "code": code, "message": refusal.message, "success": False}


def answered(session: Session, answer: Answer) -> dict[str, Any]:
    """The result of a statement that ran."""
    if answer.type_id in _DML_TYPES:
        columns = [column.to_pylist() for column in answer.table.columns]
        rowset = [[None if value is None else str(value) for value in row] for row in zip(*columns, strict=True)]
        if len(rowset) == 1 and len(answer.rowtype) == 1:
            rowset = [[str(answer.rows)]]
        result: dict[str, Any] = {"queryResultFormat": "json", "rowset": rowset}
    else:
        encoded = b64encode(to_ipc(_with_masks(to_sf(answer.table, list(answer.rowtype))))).decode()
        result = {"queryResultFormat": "arrow", "rowsetBase64": encoded}
    rows = answer.table.num_rows
    return _success(session, answer.rowtype, answer.type_id, answer.query_id, {"total": rows, "returned": rows, **result})


def described(session: Session, rowtype: Any, type_id: int, binds: int) -> dict[str, Any]:
    """The columns that a statement would return, without having run it."""
    result = (
        {"queryResultFormat": "json", "rowset": []}
        if type_id in _DML_TYPES
        else {"queryResultFormat": "arrow", "rowsetBase64": ""}
    )
    more = {"total": 0, "returned": 0, "numberOfBinds": binds, "arrayBindSupported": type_id == _INSERT}
    return _success(session, rowtype, type_id, str(uuid.uuid4()), {**more, **result})


def _success(session: Session, rowtype: Any, type_id: int, query_id: str, more: dict[str, Any]) -> dict[str, Any]:
    database, schema = session.place
    data = {
        "parameters": [{"name": "TIMEZONE", "value": "Etc/UTC"}, {"name": "AUTOCOMMIT", "value": session.autocommit}],
        "rowtype": list(rowtype),
        "queryId": query_id,
        "statementTypeId": type_id,
        "finalDatabaseName": database,
        "finalSchemaName": schema,
        "finalWarehouseName": session.warehouse,
        "finalRoleName": session.role,
        **more,
    }
    return {"data": data, "success": True, "code": None, "message": None}


def _with_masks(table: Any) -> Any:
    """Timestamps are structs; a NULL must be masked in the struct, for its fields may not be null."""
    columns = []
    for column in table.columns:
        if not pa.types.is_struct(column.type):
            columns.append(column)
            continue
        whole = column.combine_chunks()
        whole = whole if isinstance(whole, pa.StructArray) else pa.concat_arrays(whole.chunks)
        fields = [column.type.field(n) for n in range(column.type.num_fields)]
        children = [whole.field(n) for n in range(len(fields))]
        missing = pc.or_(pc.is_null(whole), pc.is_null(children[0]))
        filled = [pc.fill_null(child, 0) for child in children]
        columns.append(pa.StructArray.from_arrays(filled, fields=fields, mask=missing))
    return pa.Table.from_arrays(columns, schema=table.schema)
