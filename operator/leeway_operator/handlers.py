"""The thin edge to kopf: what it calls, and what is written back."""

from datetime import UTC, datetime
from typing import Any

import kopf

from leeway_operator.crd import GROUP, PLURAL, VERSION
from leeway_operator.metrics import VISIT_FAILURES, VISITS
from leeway_operator.spec import Spec
from leeway_operator.status import Condition
from leeway_operator.visit import visit


def registry() -> kopf.OperatorRegistry:
    """Return the handlers of the operator. Of the Kubernetes client libraries none is needed to log in."""
    handlers = kopf.OperatorRegistry()
    for login in (kopf.login_with_service_account, kopf.login_with_kubeconfig):
        kopf.on.login(registry=handlers, errors=kopf.ErrorsMode.IGNORED)(login)
    for event in (kopf.on.create, kopf.on.resume, kopf.on.update):
        event(GROUP, VERSION, PLURAL, registry=handlers)(visit_profile)
    return handlers


async def visit_profile(
    *, name: str, meta: kopf.Meta, spec: kopf.Spec, status: kopf.Status, patch: kopf.Patch, **_: Any
) -> None:
    """Bring the status of a profile up to date; what is right already is not written again."""
    with VISITS.time(), VISIT_FAILURES.count_exceptions():
        previous = [Condition.model_validate(condition) for condition in status.get("conditions", [])]
        now = datetime.now(UTC).replace(microsecond=0)
        found = visit(name, meta["generation"], Spec.model_validate(dict(spec)), previous, now)
        wanted = found.model_dump(mode="json", by_alias=True, exclude_none=True)
        patch.status.update({field: value for field, value in wanted.items() if status.get(field) != value})
