"""The CRI's ImageService: every image is there, save other versions of what is installed."""
# ruff: noqa: N802 - the names are the CRI's

from leeway_standalone.cri import api_pb2 as cri
from leeway_standalone.cri import api_pb2_grpc, stats
from leeway_standalone.cri.images import Image, ImageError
from leeway_standalone.cri.runtime import Context, Runtime


class ImageService(api_pb2_grpc.ImageServiceServicer):  # type: ignore[misc]
    """Answers the kubelet's questions about images."""

    def __init__(self, runtime: Runtime) -> None:
        """Answer from what the runtime knows."""
        self.runtime = runtime

    async def ImageStatus(self, request: cri.ImageStatusRequest, _: Context) -> cri.ImageStatusResponse:
        """Tell that an image is there, and its user; nothing if it is not, so that the kubelet pulls and hears why."""
        reference = request.image.image
        try:
            return cri.ImageStatusResponse(image=_message(reference, self.runtime.images.find(reference)))
        except ImageError:
            return cri.ImageStatusResponse()

    async def PullImage(self, request: cri.PullImageRequest, _: Context) -> cri.PullImageResponse:
        """Fetch nothing: an image is the machine itself or what is installed on it."""
        reference = request.image.image
        self.runtime.images.find(reference)
        return cri.PullImageResponse(image_ref=reference)

    async def ListImages(self, request: cri.ListImagesRequest, _: Context) -> cri.ListImagesResponse:
        """List the images that are known by name."""
        wanted = request.filter.image.image
        known = {f"{name}:{image.version}": image for name, image in self.runtime.images.known.items()}
        images = [_message(reference, image) for reference, image in known.items() if wanted in ("", reference)]
        return cri.ListImagesResponse(images=images)

    async def RemoveImage(self, _request: cri.RemoveImageRequest, _: Context) -> cri.RemoveImageResponse:
        """Remove nothing: the environment belongs to the machine."""
        return cri.RemoveImageResponse()

    async def ImageFsInfo(self, _request: cri.ImageFsInfoRequest, _: Context) -> cri.ImageFsInfoResponse:
        """Tell what the runtime keeps on disk."""
        usage = stats.records_usage(self.runtime.root)
        return cri.ImageFsInfoResponse(image_filesystems=[usage], container_filesystems=[usage])


def _message(reference: str, image: Image) -> cri.Image:
    uid = None if image.uid is None else cri.Int64Value(value=image.uid)
    return cri.Image(
        id=reference, repo_tags=[reference], size=1, uid=uid, spec=cri.ImageSpec(image=reference), pinned=True
    )
