"""What of RunPod's API the simulator answers."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Route:
    """An operation of the schema."""

    method: str
    pattern: str
    template: str
    operation: str


ROUTES = (
    Route("GET", r"/v2/pods", "/v2/pods", "listPods"),
    Route("POST", r"/v2/pods", "/v2/pods", "createPod"),
    Route("GET", r"/v2/pods/([^/]+)", "/v2/pods/{id}", "getPod"),
    Route("DELETE", r"/v2/pods/([^/]+)", "/v2/pods/{id}", "deletePod"),
    Route("POST", r"/v2/pods/([^/]+)/action", "/v2/pods/{id}/action", "podAction"),
    Route("GET", r"/v2/catalog/gpus", "/v2/catalog/gpus", "listGpuTypes"),
    Route("GET", r"/v2/network-volumes/([^/]+)", "/v2/network-volumes/{id}", "getNetworkVolume"),
    Route("PATCH", r"/v2/network-volumes/([^/]+)", "/v2/network-volumes/{id}", "updateNetworkVolume"),
)
