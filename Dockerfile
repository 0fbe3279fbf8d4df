# The image of slurm-bridge: its own code in one layer, over its dependencies in another, over a Debian with Python.
#
#     docker build -t registry.example/slurm-bridge:0.1.0 .      (or: podman build, buildah bud --format docker)
#
# BASE is any Debian-based image with python3 (3.11 or newer, with venv) on its PATH.  Every package comes from the lock files
# with its hash.  Two builds of one commit on one base hold the same files; with --timestamp (buildah) their layers are the same
# bytes, wherever the checkout is and whatever the modes of its files.  buildah also writes the id of its working container into
# the image's configuration, so compare the layers (diff_ids) and not the digest of the image.
ARG BASE=docker.io/library/python:3.11-slim-bookworm

FROM ${BASE} AS dependencies
RUN python3 -m venv /opt/build && python3 -m venv --without-pip /opt/venv
COPY requirements.txt /src/
# The secret is a pip.conf, for a site with an index of its own; it is in no layer.
# Bytecode is valid whatever the files' times are, since an image's are changed.  It is left out for the thousand models of
# the Kubernetes package, of which the bridge loads two.
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf \
    /opt/build/bin/pip --python /opt/venv/bin/python install --disable-pip-version-check --no-cache-dir --no-compile \
        --no-deps --only-binary :all: --require-hashes -r /src/requirements.txt \
    && /opt/venv/bin/python -m compileall -q --invalidation-mode unchecked-hash \
        -x '/kubernetes/(aio/)?client/(api|models)/' /opt/venv/lib

FROM dependencies AS package
COPY requirements-build.txt /src/
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf \
    /opt/build/bin/pip install --disable-pip-version-check --no-cache-dir \
        --no-deps --only-binary :all: --require-hashes -r /src/requirements-build.txt
COPY pyproject.toml README.md LICENSE /src/
COPY scheduler /src/scheduler
COPY bridge /src/bridge
RUN /opt/build/bin/pip wheel --disable-pip-version-check --no-index --no-deps --no-build-isolation -w /dist /src \
    && /opt/build/bin/pip --python /opt/venv/bin/python install --disable-pip-version-check --no-index --no-deps --no-compile \
        --target /opt/slurm-bridge /dist/*.whl \
    && /opt/venv/bin/python -m compileall -q --invalidation-mode unchecked-hash /opt/slurm-bridge

FROM ${BASE}
COPY --from=dependencies /opt/venv /opt/venv
COPY --from=package /opt/slurm-bridge /opt/slurm-bridge
ENV PATH=/opt/slurm-bridge/bin:/opt/venv/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONPATH=/opt/slurm-bridge
# A number, so that Kubernetes can see that it is not root.
USER 65532:65532
EXPOSE 8080
# For engines other than Kubernetes, which has probes of its own (manifests/base/deployment.yaml).  It asks a bridge with the
# default `http`; for others, and for the webhook, give the engine a check of your own or none (--no-healthcheck).
HEALTHCHECK --interval=30s --timeout=5s --start-period=10s \
    CMD ["python3", "-c", "import urllib.request as http; http.urlopen('http://127.0.0.1:8080/healthz', timeout=4)"]
ENTRYPOINT ["slurm-bridge"]
CMD ["run"]
ARG BASE
ARG VERSION=0.1.0
ARG REVISION=
LABEL org.opencontainers.image.title="slurm-bridge" \
      org.opencontainers.image.description="A Kubernetes scheduler that asks Slurm for the nodes" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="${BASE}"
