# One node. Its folder is the volume /var/lib/gal: nothing else is written to, so run it with a read-only root
# (docker run --read-only --tmpfs /tmp). docs/how-to/production.md says how.

FROM python:3.11-slim-bookworm AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE constraints.txt ./
COPY src ./src
# Which extras: node for all; privacy for noise with a guarantee; dask for fits on a cluster.
ARG EXTRAS=node,privacy,postgresql
RUN python -m venv /opt/gal \
    && /opt/gal/bin/pip install --no-cache-dir --no-compile -c constraints.txt ".[${EXTRAS}]" \
    # A sandboxed process, on a read-only root, cannot keep what it compiles. (A few files in packages
    # are no Python of this version, and stay as they are.)
    && { /opt/gal/bin/python -m compileall -qq -j 0 /opt/gal/lib || true; }

FROM python:3.11-slim-bookworm
RUN useradd --system --uid 10001 --user-group --home-dir /var/lib/gal --shell /usr/sbin/nologin gal \
    && install -d -o gal -g gal -m 0700 /var/lib/gal
COPY --from=build /opt/gal /opt/gal
ENV PATH=/opt/gal/bin:$PATH GAL_HOME=/var/lib/gal PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
WORKDIR /var/lib/gal
VOLUME /var/lib/gal
# Only a label holder is dialed; who assists publishes nothing.
EXPOSE 7443
# A node that learns answers all the same; one whose worker cannot be started does not.
HEALTHCHECK --interval=30s --timeout=10s --start-period=60s --retries=3 \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8470/livez', timeout=8)"]
# SIGTERM ends it cleanly: what it was doing is stored and continued after the start.
STOPSIGNAL SIGTERM
ENTRYPOINT ["gal"]
CMD ["serve", "--log", "json", "--page", "--page-at", "127.0.0.1:8470"]
