#!/usr/bin/env bash
# Looks into an RPM package with rpm itself: what has to be in it is, the configuration is kept, its scripts are there.
#   check-rpm.sh PACKAGE
set -euo pipefail
package=${1:?PACKAGE}
command -v rpm >/dev/null || { echo "check-rpm: rpm is missing: apt-get install rpm" >&2; exit 1; }
files=$(rpm -qlp "$package")
for file in /usr/bin/volferry /usr/sbin/volferryd /usr/lib/systemd/system/volferryd.service /etc/volferry/volferry.toml \
  /usr/lib/sysusers.d/volferry.conf /usr/lib/tmpfiles.d/volferry.conf /usr/share/man/man1/volferry.1 \
  /usr/share/man/man5/volferry.toml.5 /usr/share/man/man8/volferryd.8 /usr/share/licenses/volferry/third-party-licences.txt \
  /usr/share/bash-completion/completions/volferry /usr/share/volferry/prometheus-alerts.yml; do
  grep -qxF "$file" <<<"$files" || { echo "check-rpm: $file is not in it" >&2; exit 1; }
done
flags=$(rpm -qp --qf '[%{FILENAMES} %{FILEFLAGS:fflags}\n]' "$package")
grep -qx '/etc/volferry/volferry.toml cn' <<<"$flags" ||
  { echo "check-rpm: an upgrade would replace the configuration" >&2; exit 1; }
for script in postinstall preuninstall postuninstall; do
  grep -q "^$script scriptlet" <<<"$(rpm -qp --scripts "$package")" || { echo "check-rpm: no $script" >&2; exit 1; }
done
rpm -K --nosignature "$package" >/dev/null || { echo "check-rpm: its digests do not fit" >&2; exit 1; }
echo "check-rpm: $package: $(wc -l <<<"$files") files"
