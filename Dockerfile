# docker build -t visleak .
# docker run --rm -u "$(id -u):$(id -g)" -v "$PWD:/data" visleak audit DATASET/
FROM python:3.12-slim
COPY pyproject.toml hatch_build.py constraints.txt README.md LICENSE CHANGELOG.md /src/
COPY src /src/src
RUN pip install --no-cache-dir -c /src/constraints.txt "/src[web,remote]" && rm -rf /src
ENV VISLEAK_CACHE=/tmp/visleak
WORKDIR /data
ENTRYPOINT ["visleak"]
