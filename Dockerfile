# syntax=docker/dockerfile:1
# Slim and glibc (google-re2 has no musl wheels); for a release, pin both stages by digest.
ARG PYTHON=python:3.12-slim-bookworm

FROM ${PYTHON} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /src
RUN python -m venv /opt/dra-scheduler
COPY requirements.lock ./
RUN /opt/dra-scheduler/bin/pip install --require-hashes --only-binary :all: -r requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY allocator allocator
COPY scheduler scheduler
RUN /opt/dra-scheduler/bin/pip install --no-deps . \
 && /opt/dra-scheduler/bin/pip uninstall --yes pip \
 && /opt/dra-scheduler/bin/python -m compileall -q /opt/dra-scheduler/lib

FROM ${PYTHON}
# No home, no writable file: the service runs from a read-only root.
RUN useradd --uid 10001 --user-group --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin dra-scheduler
COPY --from=build /opt/dra-scheduler /opt/dra-scheduler
ENV PATH=/opt/dra-scheduler/bin:${PATH} PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 10001:10001
EXPOSE 8888 8081
ENTRYPOINT ["dra-scheduler"]
CMD ["run"]
