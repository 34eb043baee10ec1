#!/bin/sh
# Audit a model in a pipeline: compute, decide the gates, write what the pipeline shows. Exit code: that of the gates.
#
#   sh gate.sh SPEC.yaml [RESULTS_FOLDER]
#
# Leaves RESULTS_FOLDER (default: audit): run/ (every sample's row), junit.xml, report.md, and report.html where jinja2 is installed.
# A run that is there is gone on with, if spec and gates are the same; start other ones in a fresh folder.
set -u

if [ $# -lt 1 ]; then
    echo "usage: sh gate.sh SPEC.yaml [RESULTS_FOLDER]" >&2
    exit 2
fi
spec=$1
results=${2:-audit}
case $results in -*) results=./$results ;; esac
mkdir -p "$results" || exit 2
rm -f "$results/junit.xml" "$results/report.md" "$results/report.html" || exit 2

robaudit estimate "$spec" --out "$results/run" --until-decided --quiet
code=$?
case $code in
0 | 1 | 4) ;;           # the gates passed, one failed, one cannot be told: what was measured is shown in any case
*) exit "$code" ;;      # 2: the spec or its files; 3: a bug; 130, 143: interrupted
esac

robaudit gate "$results/run" --format junit -o "$results/junit.xml"
again=$?
if [ "$again" -ne "$code" ]; then
    echo "robaudit gate ends with $again, robaudit estimate with $code" >&2
    exit 3
fi
robaudit report "$results/run" --format md -o "$results/report.md" || exit $?
robaudit report "$results/run" -o "$results/report.html" || echo "no HTML report: pip install 'robaudit[report]'" >&2
exit "$code"
