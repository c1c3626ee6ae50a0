# The servers, and every other command, as a user without rights. Nothing in the image is written to when it runs:
#   docker run --read-only --tmpfs /tmp ... shufflesum serve shuffler
# compose.yaml brings up a working pair; docs/deploy.md says what is what.
FROM python:3.12-slim AS build
WORKDIR /build
COPY pyproject.toml README.md ./
COPY src src
RUN python -m venv /opt/shufflesum && /opt/shufflesum/bin/pip install --no-cache-dir '.[service,files,plots]'

FROM python:3.12-slim
COPY --from=build /opt/shufflesum /opt/shufflesum
COPY deploy/prepare.sh deploy/healthcheck.py /opt/shufflesum/deploy/
# A volume that is new takes over owner and mode of the folder it is mounted on.
RUN groupadd --system --gid 10001 shufflesum \
    && useradd --system --uid 10001 --gid 10001 --home-dir /tmp --no-create-home --shell /usr/sbin/nologin shufflesum \
    && install -d -o 10001 -g 10001 -m 0755 /etc/shufflesum/public /etc/shufflesum/shuffler-db /etc/shufflesum/analyzer-db \
    && install -d -o 10001 -g 10001 -m 0700 /etc/shufflesum/shuffler /etc/shufflesum/analyzer /var/lib/shufflesum
# Kernels are compiled when a server starts, and their machine code is kept where one may write.
ENV PATH=/opt/shufflesum/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    NUMBA_CACHE_DIR=/tmp/kernels \
    SHUFFLESUM_HOST=0.0.0.0 \
    SHUFFLESUM_PORT=8443
USER 10001:10001
WORKDIR /var/lib/shufflesum
EXPOSE 8443
HEALTHCHECK --interval=10s --timeout=8s --start-period=60s --retries=3 \
    CMD ["python", "/opt/shufflesum/deploy/healthcheck.py"]
ENTRYPOINT ["shufflesum"]
CMD ["--help"]
