# Leeway's own image, for the operator, the tuner, gateways and engine pods: docker build -t REGISTRY/leeway:0.1.0 .
# The base has a C++ compiler, with which an engine pod on CPUs makes its kernels when it starts.
FROM python:3.12-bookworm AS build
WORKDIR /source
COPY requirements requirements
RUN python -m venv /opt/uv && /opt/uv/bin/pip install --no-cache-dir --require-hashes -r requirements/uv.txt
RUN python -m venv /opt/leeway \
 && /opt/uv/bin/uv pip install --no-cache --python /opt/leeway/bin/python --require-hashes -r requirements/image.txt
COPY . .
RUN /opt/uv/bin/uv build --no-cache --wheel --out-dir dist --build-constraints requirements/dev.txt --require-hashes \
 && /opt/uv/bin/uv pip install --no-cache --python /opt/leeway/bin/python --no-deps dist/*.whl

FROM python:3.12-bookworm
COPY --from=build /opt/leeway /opt/leeway
ENV PATH=/opt/leeway/bin:$PATH PYTHONUNBUFFERED=1
USER 65532:65532
ENTRYPOINT ["leeway"]
