"""SQL table ``templates``: saved configurations to create benchmark runs from."""

from collections.abc import Sequence
from typing import Any

from drumbeat.core.errors import AlreadyExists, NotFound, Refused
from drumbeat.core.run import Template
from drumbeat.store.sql.database import Database, Script
from drumbeat.store.sql.rows import dump, like_pattern, load, template_of


class SqlTemplates:
    """Saves, lists and deletes templates (run configurations), each with a unique name."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(self, template: Template) -> Template:
        rows = await self._database.write("add_template", _values(template))
        if not rows:
            raise AlreadyExists(
                f"template {template.template_id!r}, or one named {template.name!r}, already exists; choose another name"
            )
        return template_of(rows[0])

    async def get(self, id_or_name: str) -> Template:
        rows = await self._database.read("find_template", {"wanted": id_or_name})
        if not rows:
            raise no_template(id_or_name)
        return template_of(rows[0])

    async def list(self, search: str | None = None, tag: str | None = None) -> Sequence[Template]:
        rows = await self._database.read("list_templates", {"search": like_pattern(search)})
        return [one for one in map(template_of, rows) if tag is None or tag in one.tags]

    async def save(self, template: Template, *, seen: Template | None = None) -> Template:
        return await self._database.transact(_save(template, seen))

    async def delete(self, template_id: str) -> None:
        await self._database.write("delete_template", {"template_id": template_id})

    async def note_use(self, template_id: str) -> Template:
        rows = await self._database.write("note_template_use", {"template_id": template_id})
        if not rows:
            raise no_template(template_id)
        return template_of(rows[0])


def no_template(id_or_name: str) -> NotFound:
    return NotFound(f"there is no template {id_or_name!r}; see: drumbeat bench template list")


def _save(template: Template, seen: Template | None) -> Script[Template]:
    rows = yield "lock_template", {"template_id": template.template_id}
    if not rows:
        raise no_template(template.template_id)
    before, values = template_of(rows[0]), _values(template)
    if seen is not None:
        before.expect_content(seen)
    if before.usage_count and before.config != load(values["config"]):
        raise Refused(
            f"the config of template {before.name!r} cannot change: {before.usage_count} runs have used it; "
            "copy the template and change the copy"
        )
    if (yield "find_other_of_name", {"name": template.name, "template_id": template.template_id}):
        raise AlreadyExists(f"a template named {template.name!r} already exists; choose another name")
    return template_of((yield "save_template", values)[0])


def _values(template: Template) -> dict[str, Any]:
    return {
        "template_id": template.template_id,
        "name": template.name,
        "description": template.description,
        "config": dump(dict(template.config)),
        "tags": dump(list(template.tags)),
    }
