#!/bin/sh
# Audit a model in a pipeline: compute, decide the gates, write what the pipeline shows. Exit code: that of the gates.
#
#   sh gate.sh SPEC.yaml [RESULTS_FOLDER]
#
# Leaves RESULTS_FOLDER (default: audit): run/ (every sample's row), junit.xml, report.md, and report.html where jinja2 is installed.
set -eu

spec=${1:?usage: sh gate.sh SPEC.yaml [RESULTS_FOLDER]}
results=${2:-audit}
mkdir -p "$results"

code=0
robaudit estimate "$spec" --out "$results/run" --until-decided --quiet || code=$?
case $code in
0 | 1 | 4) ;;           # the gates passed, one failed, one cannot be told: what was measured is shown in any case
*) exit "$code" ;;      # 2: the spec or its files; 3: a bug; 130, 143: interrupted
esac

robaudit gate "$results/run" --format junit -o "$results/junit.xml" || [ $? -eq "$code" ]
robaudit report "$results/run" --format md -o "$results/report.md"
robaudit report "$results/run" -o "$results/report.html" || echo "no HTML report: pip install 'robaudit[report]'" >&2
exit "$code"
