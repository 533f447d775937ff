"""What a profile's children may do in the cluster."""

from leeway_operator.children.gateway import gateway_children
from operator_doubles import NAMESPACE, World


def test_the_gateway_may_read_endpoint_slices_of_its_namespace_and_nothing_else() -> None:
    children = gateway_children(World().profile, "image")
    (account,) = (child for child in children if child["kind"] == "ServiceAccount")
    (role,) = (child for child in children if child["kind"].endswith("Role"))
    (binding,) = (child for child in children if child["kind"].endswith("RoleBinding"))
    (deployment,) = (child for child in children if child["kind"] == "Deployment")
    assert (role["kind"], binding["kind"]) == ("Role", "RoleBinding")
    assert role["metadata"]["namespace"] == binding["metadata"]["namespace"] == NAMESPACE
    assert role["rules"] == [
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["get", "list", "watch"]}
    ]
    assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) == ("Role", role["metadata"]["name"])
    name = account["metadata"]["name"]
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}]
    assert deployment["spec"]["template"]["spec"]["serviceAccountName"] == name
