"""Templates in memory: reusable configurations of benchmark runs."""

from collections.abc import Sequence
from dataclasses import replace

from drumbeat.core.errors import AlreadyExists, NotFound, Refused
from drumbeat.core.run import Template
from drumbeat.store.memory.state import MemoryTable, operation, plain


class MemoryTemplates(MemoryTable):
    @operation
    def create(self, template: Template) -> Template:
        if template.template_id in self.state.templates:
            raise AlreadyExists(f"template {template.template_id!r} already exists; change it with save, or choose another id")
        self._check_name(template)
        now = self.state.now()
        made = replace(
            template, config=plain(template.config), usage_count=0, last_used_at=None, created_at=now, updated_at=now
        )
        self.state.templates[template.template_id] = made
        return made

    @operation
    def get(self, id_or_name: str) -> Template:
        return self._find(id_or_name, *(one.template_id for one in self._all() if one.name == id_or_name))

    @operation
    def list(self, search: str | None = None, tag: str | None = None) -> Sequence[Template]:
        part = (search or "").lower()
        return [
            one
            for one in sorted(self._all(), key=lambda one: one.name)
            if (part in one.name.lower() or part in (one.description or "").lower()) and (tag is None or tag in one.tags)
        ]

    @operation
    def save(self, template: Template, *, seen: Template | None = None) -> Template:
        row = self._find(template.template_id)
        if seen is not None:
            row.expect_content(seen)
        config = plain(template.config)
        if row.usage_count and config != row.config:
            raise Refused(
                f"the config of template {row.name!r} cannot change: {row.usage_count} runs have used it; "
                "copy the template and change the copy"
            )
        self._check_name(template)
        return self._put(
            replace(
                row,
                name=template.name,
                config=config,
                description=template.description,
                tags=template.tags,
                updated_at=self.state.now(),
            )
        )

    @operation
    def delete(self, template_id: str) -> None:
        self.state.templates.pop(template_id, None)

    @operation
    def note_use(self, template_id: str) -> Template:
        row = self._find(template_id)
        return self._put(replace(row, usage_count=row.usage_count + 1, last_used_at=self.state.now()))

    def _all(self) -> Sequence[Template]:
        return tuple(self.state.templates.values())

    def _find(self, *ids: str) -> Template:
        for each in ids:
            if each in self.state.templates:
                return self.state.templates[each]
        raise NotFound(f"there is no template {ids[0]!r}; see: drumbeat bench template list")

    def _check_name(self, template: Template) -> None:
        if any(one.name == template.name and one.template_id != template.template_id for one in self._all()):
            raise AlreadyExists(f"a template named {template.name!r} already exists; choose another name")

    def _put(self, row: Template) -> Template:
        self.state.templates[row.template_id] = row
        return row
